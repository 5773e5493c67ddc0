package values

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// addEnv merges by name: values, then the namespace's, then the pod's own. A
// layer that is no JSON list of variables is passed over.
func (v *Values) addEnv(a Annotations) (warnings []string) {
	merged := slices.Clone(v.Proxy.AdditionalEnv)
	for _, layer := range []map[string]string{a.Namespace, a.Own} {
		text, ok := layer[additionalEnv]
		if !ok {
			continue
		}
		env, err := parseEnv(text)
		if err != nil {
			warnings = append(warnings, "annotation "+additionalEnv+" is ignored: it is no JSON list of variables")
			continue
		}
		for _, e := range env {
			i := slices.IndexFunc(merged, func(m corev1.EnvVar) bool { return m.Name == e.Name })
			if i < 0 {
				merged = append(merged, e)
			} else {
				merged[i] = e
			}
		}
	}
	v.Proxy.AdditionalEnv = merged
	return warnings
}

var errEnv = errors.New("no list of variables")

// parseEnv reads a JSON list of variables. The only quantity in one, a divisor,
// is looked at before Kubernetes' parser is.
func parseEnv(text string) ([]corev1.EnvVar, error) {
	var tree []any // without repeated keys
	if err := json.Unmarshal([]byte(text), &tree); err != nil {
		return nil, errEnv
	}
	if !saneDivisors(tree) {
		return nil, errEnv
	}
	clean, err := json.Marshal(tree)
	if err != nil {
		return nil, errEnv
	}
	var env []corev1.EnvVar
	if err := json.Unmarshal(clean, &env); err != nil {
		return nil, errEnv
	}
	return env, nil
}

func saneDivisors(v any) bool {
	switch v := v.(type) {
	case []any:
		return !slices.ContainsFunc(v, func(e any) bool { return !saneDivisors(e) })
	case map[string]any:
		for key, e := range v {
			if s, ok := e.(string); ok && strings.EqualFold(key, "divisor") && !sane.MatchString(s) {
				return false
			}
			if !saneDivisors(e) {
				return false
			}
		}
	}
	return true
}
