{{/* Names, labels, images and domains, each said once. */}}

{{- define "weft.version" -}}
{{ .Values.linkerdVersion | default .Chart.AppVersion }}
{{- end }}

{{- define "weft.trustDomain" -}}
{{ .Values.identityTrustDomain | default .Values.clusterDomain }}
{{- end }}

{{- define "weft.createdBy" -}}
weft/{{ .Release.Service | lower }} {{ include "weft.version" . }}
{{- end }}

{{/* weft.labels: of every object. Takes {root, component}. */}}
{{- define "weft.labels" -}}
app.kubernetes.io/name: {{ .name | default .component }}
app.kubernetes.io/part-of: Linkerd
app.kubernetes.io/version: {{ include "weft.version" .root | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
linkerd.io/control-plane-component: {{ .component }}
linkerd.io/control-plane-ns: {{ .root.Release.Namespace }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* weft.annotations: of every object but pods. */}}
{{- define "weft.annotations" -}}
linkerd.io/created-by: {{ include "weft.createdBy" . }}
{{- end }}

{{/* weft.image: {root, image, short}: short is the name in our registry. */}}
{{- define "weft.image" -}}
{{- $name := .image.name | default (printf "%s/%s" .root.Values.registry .short) -}}
{{- $version := .image.version | default (include "weft.version" .root) -}}
{{ $name }}:{{ $version }}
{{- end }}

{{- define "weft.pullPolicy" -}}
{{ .image.pullPolicy | default .root.Values.imagePullPolicy }}
{{- end }}

{{/* weft.any: the address of every interface, of both families if there are two. Takes {root, port}. */}}
{{- define "weft.any" -}}
{{ ternary "0.0.0.0" "[::]" .root.Values.disableIPv6 }}:{{ .port }}
{{- end }}

{{/* weft.resources: Linkerd's shape ({cpu: {limit, request}, …}) as Kubernetes has it. */}}
{{- define "weft.resources" -}}
{{- $limits := dict }}{{ $requests := dict }}
{{- range $kind := list "cpu" "memory" "ephemeral-storage" }}
{{- $of := index $ $kind | default dict }}
{{- with $of.limit }}{{ $_ := set $limits $kind . }}{{ end }}
{{- with $of.request }}{{ $_ := set $requests $kind . }}{{ end }}
{{- end }}
{{- $out := dict }}
{{- with $limits }}{{ $_ := set $out "limits" . }}{{ end }}
{{- with $requests }}{{ $_ := set $out "requests" . }}{{ end }}
{{- toYaml $out }}
{{- end }}

{{/* weft.identityOf: the mesh identity of a ServiceAccount. Takes {root, sa, ns}. */}}
{{- define "weft.identityOf" -}}
{{ .sa }}.{{ .ns }}.serviceaccount.identity.{{ .root.Release.Namespace }}.{{ include "weft.trustDomain" .root }}
{{- end }}

{{/* weft.replicas: {root, of}: a component's own number, else controllerReplicas. */}}
{{- define "weft.replicas" -}}
{{ .of.replicas | default .root.Values.controllerReplicas | int }}
{{- end }}
