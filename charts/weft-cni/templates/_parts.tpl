{{- define "weft-cni.labels" -}}
app.kubernetes.io/name: linkerd-cni
app.kubernetes.io/part-of: Linkerd
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
k8s-app: linkerd-cni
linkerd.io/cni-resource: "true"
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "weft-cni.annotations" -}}
linkerd.io/created-by: weft/{{ .Release.Service | lower }} {{ .Chart.AppVersion }}
{{- end }}

{{- define "weft-cni.image" -}}
{{ .Values.image.name | default (printf "%s/cni-plugin" .Values.registry) }}:{{ .Values.image.version | default .Chart.AppVersion }}
{{- end }}

{{/* weft-cni.resources: Linkerd's shape ({cpu: {limit, request}, …}) as Kubernetes has it. */}}
{{- define "weft-cni.resources" -}}
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

{{/* weft-cni.list: text with commas as a JSON list. */}}
{{- define "weft-cni.list" -}}
{{- $out := list }}
{{- range splitList "," . }}{{ with trim . }}{{ $out = append $out . }}{{ end }}{{ end }}
{{- toJson $out }}
{{- end }}

{{/* weft-cni.network: the plugin's entry in the node's CNI configuration. */}}
{{- define "weft-cni.network" -}}
{{- $v := .Values }}
{{- $l := dict "incoming-proxy-port" (int $v.inboundProxyPort) "outgoing-proxy-port" (int $v.outboundProxyPort) "proxy-uid" (int64 $v.proxyUID)
    "ports-to-redirect" (include "weft-cni.list" $v.portsToRedirect | fromJsonArray)
    "inbound-ports-to-ignore" (concat (list (toString (int $v.proxyControlPort)) (toString (int $v.proxyAdminPort))) (include "weft-cni.list" $v.ignoreInboundPorts | fromJsonArray))
    "outbound-ports-to-ignore" (include "weft-cni.list" $v.ignoreOutboundPorts | fromJsonArray)
    "subnets-to-ignore" (include "weft-cni.list" $v.skipSubnets | fromJsonArray)
    "simulate" false "use-wait-flag" $v.useWaitFlag "iptables-mode" $v.iptablesMode "ipv6" (not $v.disableIPv6) }}
{{- if ge (int64 $v.proxyGID) 0 }}{{ $_ := set $l "proxy-gid" (int64 $v.proxyGID) }}{{ end }}
{{- dict "name" "linkerd-cni" "type" "linkerd-cni" "log_level" $v.logLevel
    "kubernetes" (dict "kubeconfig" "__KUBECONFIG_FILEPATH__") "linkerd" $l | toPrettyJson }}
{{- end }}
