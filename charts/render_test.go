package charts

import (
	"os"
	"testing"
)

func TestTry(t *testing.T) {
	list, err := Render(ControlPlane, nil, Options{Version: "dev"})
	if err != nil {
		t.Fatal(err)
	}
	os.WriteFile("/tmp/cp.yaml", YAML(list), 0o644)
	for _, m := range list {
		t.Log(m.Kind, m.Name)
	}
}
