package profile

import "strings"

// template is a profile to begin with; each line that may be wanted is there.
const template = `### ServiceProfile of SERVICE.NAMESPACE
apiVersion: linkerd.io/v1alpha2
kind: ServiceProfile
metadata:
  name: FULLNAME
  namespace: NAMESPACE
spec:
  # Requests are counted by route, and a route may be retried or get a timeout.
  # The first route whose condition holds takes the request.
  routes:
  - name: '/authors/{id}'

    # Which requests are of this route. All that is written in one condition must hold.
    condition:
      # A regular expression that the whole path must match.
      pathRegex: '/authors/\d+'
      # A method.
      method: POST

      # Conditions can be put together:
      # all:
      # - pathRegex: '/authors/\d+'
      # - method: POST
      # any:
      # - pathRegex: '/authors/\d+'
      # - pathRegex: '/writers/\d+'
      # not:
      #   method: HEAD

    # Which responses are failures; without any, those with status 500 and above.
    responseClasses:
    - condition:
        status:
          min: 500
          max: 599
      # all, any and not work here, too.
      isFailure: true

    # Requests of this route may be sent again after a failure.
    # isRetryable: true

    # A response must be there within this time, retries included.
    # timeout: 250ms

  # How much load retries may add: so many for each request, and so many a second
  # whatever the load; counted over ttl.
  # retryBudget:
  #   retryRatio: 0.2
  #   minRetriesPerSecond: 10
  #   ttl: 10s

  # Share of the traffic that goes to other services.
  # dstOverrides:
  # - authority: SERVICE-new.NAMESPACE.svc.CLUSTERDOMAIN:80
  #   weight: 100m
`

// Template is the text of a profile that a person is to change.
func Template(s Service) string {
	return strings.NewReplacer(
		"FULLNAME", s.profileName(), "SERVICE", s.Name, "NAMESPACE", s.Namespace, "CLUSTERDOMAIN", s.ClusterDomain,
	).Replace(template)
}
