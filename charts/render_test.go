package charts

import ("testing";"os")

func TestTry(t *testing.T) {
	for _, c := range []string{CRDs, ControlPlane, CNI} {
	list, err := Render(c, nil, Options{Version: "dev"})
	if err != nil { t.Fatal(err) }
	os.WriteFile("/tmp/"+c+".yaml", YAML(list), 0o644)
	for _, m := range list { t.Log(m.Kind, m.Name) }
	}
}
