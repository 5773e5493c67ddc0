package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
)

// kubeconfig is the one shape that Kubeconfig writes and FromKubeconfig reads:
// JSON, which every other reader of kubeconfigs takes for YAML.
type kubeconfig struct {
	APIVersion     string         `json:"apiVersion"`
	Kind           string         `json:"kind"`
	Clusters       []namedCluster `json:"clusters"`
	Users          []namedUser    `json:"users"`
	Contexts       []namedContext `json:"contexts"`
	CurrentContext string         `json:"current-context"`
}

type namedCluster struct {
	Name    string `json:"name"`
	Cluster struct {
		Server string `json:"server"`
		CA     []byte `json:"certificate-authority-data,omitempty"`
	} `json:"cluster"`
}

type namedUser struct {
	Name string `json:"name"`
	User struct {
		Token string `json:"token"`
	} `json:"user"`
}

type namedContext struct {
	Name    string `json:"name"`
	Context struct {
		Cluster string `json:"cluster"`
		User    string `json:"user"`
	} `json:"context"`
}

// Kubeconfig is the content of a file for the plugin. It holds a secret.
func Kubeconfig(server string, ca []byte, token string) []byte {
	k := kubeconfig{APIVersion: "v1", Kind: "Config", CurrentContext: "linkerd-cni-context"}
	cluster := namedCluster{Name: "local"}
	cluster.Cluster.Server, cluster.Cluster.CA = server, ca
	user := namedUser{Name: "linkerd-cni"}
	user.User.Token = token
	context := namedContext{Name: k.CurrentContext}
	context.Context.Cluster, context.Context.User = cluster.Name, user.Name
	k.Clusters, k.Users, k.Contexts = []namedCluster{cluster}, []namedUser{user}, []namedContext{context}
	b, _ := json.MarshalIndent(k, "", "  ") // strings and bytes only
	return append(b, '\n')
}

// FromKubeconfig is the client that the file at path describes. Errors never
// carry the file's content.
func FromKubeconfig(path string) (*Client, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var k kubeconfig
	if json.Unmarshal(b, &k) != nil {
		return nil, fmt.Errorf("%s is not a kubeconfig that `weft-cni install` wrote", path)
	}
	if len(k.Clusters) != 1 || len(k.Users) != 1 {
		return nil, errors.New(path + " names not one cluster and one user")
	}
	token := k.Users[0].User.Token
	return dial(k.Clusters[0].Cluster.Server, k.Clusters[0].Cluster.CA, func() (string, error) { return token, nil })
}
