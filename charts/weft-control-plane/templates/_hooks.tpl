{{/*
Webhooks: the injector's, and those of the policy server that judge policies and ServiceProfiles. Each has a Service, a
Secret <service>-k8s-tls and a configuration, and its certificate is given, made here, or made by cert-manager.
*/}}

{{/* weft.hooks: the webhooks by the name of their values, as JSON. */}}
{{- define "weft.hooks" -}}
{{- dict "proxyInjector" (dict "service" "linkerd-proxy-injector" "component" "proxy-injector")
    "policyValidator" (dict "service" "linkerd-policy-validator" "component" "policy")
    "profileValidator" (dict "service" "linkerd-sp-validator" "component" "policy") | toJson }}
{{- end }}

{{/* weft.hook.make: {root, hook}: fills _weft.<hook> with {service, mine, crt, key, ca, renewAfter}; ca is "" when others inject it. */}}
{{- define "weft.hook.make" -}}
{{- $root := .root }}
{{- include "weft.memo" $root }}
{{- if not (hasKey $root.Values._weft .hook) }}
{{- $i := index $root.Values .hook }}{{ $ns := $root.Release.Namespace }}
{{- $service := index (include "weft.hooks" . | fromJson) .hook "service" }}
{{- $got := dict "mine" false "ca" ($i.caBundle | trim) }}
{{- if $i.crtPEM }}
{{- $got = dict "mine" true "crt" ($i.crtPEM | trim) "key" ($i.keyPEM | trim) "ca" ($i.caBundle | default $i.crtPEM | trim) "renewAfter" "" }}
{{- else if not (or $i.externalSecret $i.certManager.enabled) }}
{{- $secret := lookup "v1" "Secret" $ns (printf "%s-k8s-tls" $service) | default dict }}{{ $data := $secret.data | default dict }}
{{- if and (index $data "tls.crt") (include "weft.fresh" (dict "secret" $secret)) }}
{{- $got = dict "mine" true "crt" (index $data "tls.crt" | b64dec | trim) "key" (index $data "tls.key" | b64dec | trim)
    "ca" (index $data "ca.crt" | default (index $data "tls.crt") | b64dec | trim) "renewAfter" (index $secret.metadata.annotations "charts.weftmesh.io/renew-after") }}
{{- else }}
{{- $name := printf "%s.%s.svc" $service $ns }}
{{- $made := genSelfSignedCertWithKey $name nil (list $name) 365 (genPrivateKey "ecdsa") }}
{{- /* the former one stays trusted until the server has seen the new file */}}
{{- $ca := $made.Cert | trim }}
{{- with index $data "tls.crt" }}{{ $ca = printf "%s\n%s" $ca (. | b64dec | trim) }}{{ end }}
{{- $got = dict "mine" true "crt" ($made.Cert | trim) "key" ($made.Key | trim) "ca" $ca "renewAfter" (include "weft.renewAfter" $root) }}
{{- end }}
{{- end }}
{{- $_ := set $got "service" $service }}
{{- $_ = set $root.Values._weft .hook $got }}
{{- end }}
{{- end }}

{{/* weft.hook.secret: {root, hook, component}: the Secret, if it is ours. */}}
{{- define "weft.hook.secret" -}}
{{- include "weft.hook.make" . }}
{{- $made := index .root.Values._weft .hook }}
{{- if $made.mine }}
---
apiVersion: v1
kind: Secret
type: kubernetes.io/tls
metadata:
  name: {{ $made.service }}-k8s-tls
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "weft.labels" . | nindent 4 }}
  annotations:
    {{- include "weft.annotations" .root | nindent 4 }}
    {{- with $made.renewAfter }}
    charts.weftmesh.io/renew-after: {{ . | quote }}
    {{- end }}
data:
  tls.crt: {{ printf "%s\n" $made.crt | b64enc }}
  tls.key: {{ printf "%s\n" $made.key | b64enc }}
  ca.crt: {{ printf "%s\n" $made.ca | b64enc }}
{{- end }}
{{- end }}

{{/* weft.hook.annotations: {root, hook}: of the configuration; cert-manager fills the CA in. */}}
{{- define "weft.hook.annotations" -}}
{{- $of := index .root.Values .hook }}
{{- include "weft.annotations" .root }}
{{- if $of.certManager.enabled }}
cert-manager.io/inject-ca-from: {{ .root.Release.Namespace }}/{{ index .root.Values._weft .hook "service" }}
{{- else if $of.injectCaFrom }}
cert-manager.io/inject-ca-from: {{ $of.injectCaFrom }}
{{- else if $of.injectCaFromSecret }}
cert-manager.io/inject-ca-from-secret: {{ $of.injectCaFromSecret }}
{{- end }}
{{- end }}

{{/* weft.hook.common: {root, hook}: what one webhook of a configuration has, whichever it is. */}}
{{- define "weft.hook.common" -}}
{{- $of := index .root.Values .hook }}{{ $made := index .root.Values._weft .hook -}}
admissionReviewVersions: [v1, v1beta1]
clientConfig:
  service: {name: {{ $made.service }}, namespace: {{ .root.Release.Namespace }}, path: /}
  {{- with $made.ca }}
  caBundle: {{ printf "%s\n" . | b64enc }}
  {{- end }}
failurePolicy: {{ .root.Values.webhookFailurePolicy }}
timeoutSeconds: {{ $of.timeoutSeconds | int }}
sideEffects: None
{{- /* What may never wait for the mesh stays out whatever the values say: the cluster's own namespaces and ours. */}}
namespaceSelector:
  {{- $own := dict "key" "kubernetes.io/metadata.name" "operator" "NotIn" "values" (list "kube-system" "kube-node-lease" .root.Release.Namespace) }}
  {{- toYaml (merge (dict "matchExpressions" (append ($of.namespaceSelector.matchExpressions | default list) $own)) $of.namespaceSelector) | nindent 2 }}
{{- end }}
