package row

// Peer is a workload and its template, joined. It exists only when both rows
// have arrived.
type Peer struct {
	Workload *Workload
	Template *Template
}

// Label finds a label of the workload: its own first, then its owner's.
func (p Peer) Label(name string) (string, bool) {
	if v, ok := p.Workload.Labels[name]; ok {
		return v, true
	}
	v, ok := p.Template.Labels[name]
	return v, ok
}

// Backend is one endpoint with what stands behind it.
type Backend struct {
	Endpoint *Endpoint
	// Peer is zero for an address that nobody stands behind, and for one whose
	// workload or template has not arrived (Endpoint.Workload is set then).
	Peer Peer
}

// ServiceFacts is everything that an answer about one Service reads, in one
// consistent cut.
type ServiceFacts struct {
	// Service is nil when there is no such Service.
	Service *Service
	// Backends are in the order of their keys: slice, then address.
	Backends []Backend
	// Servers are the opaque ones, by namespace, of every namespace that a
	// backend's workload is in.
	Servers map[string][]*Server
}

// ProfileFacts is everything that a profile of a Service reads.
type ProfileFacts struct {
	// Service is nil when there is no such Service.
	Service *Service
	// Profile is the ServiceProfile that counts for the client; nil for none.
	Profile *ServiceProfile
	// Split is the TrafficSplit of the Service; nil for none.
	Split *TrafficSplit
}

// AddressFacts is everything that an answer about one IP reads.
type AddressFacts struct {
	// Services have the IP as a cluster IP.
	Services []*Service
	// Pods have it as their own, Hosts run on a node that has it and declare a
	// host port, and Externals are ExternalWorkloads at it.
	Pods, Hosts, Externals []Peer
	Servers                map[string][]*Server
}
