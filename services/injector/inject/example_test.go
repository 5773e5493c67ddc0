package inject_test

import (
	"fmt"

	"sigs.k8s.io/yaml"

	"github.com/weftmesh/weft/services/injector/inject"
)

func ExampleAnnotate() {
	const manifest = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: kiln}
spec:
  template:
    spec:
      containers: [{name: main, image: example/kiln:1}]
`
	var object inject.Object
	if err := yaml.Unmarshal([]byte(manifest), &object); err != nil {
		fmt.Println(err)
		return
	}
	out, reports, err := inject.Annotate(object, inject.Mesh{}, inject.Options{
		Config: map[string]string{"config.linkerd.io/proxy-log-level": "debug"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	text, _ := yaml.Marshal(out["spec"])
	fmt.Printf("%s %s\n%s", reports[0].Object(), reports[0].Outcome, text)
	// Output:
	// deployment/kiln annotated
	// template:
	//   metadata:
	//     annotations:
	//       config.linkerd.io/proxy-log-level: debug
	//       linkerd.io/inject: enabled
	//   spec:
	//     containers:
	//     - image: example/kiln:1
	//       name: main
}
