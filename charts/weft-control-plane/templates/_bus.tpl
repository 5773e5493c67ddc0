{{/* The bus: who is on it, where it is, and what each may say and hear. */}}

{{/* weft.bus.services: who has a certificate, as JSON. mirror and cli are for processes outside this chart. */}}
{{- define "weft.bus.services" -}}
{{- $all := list "cli" "destination" "heartbeat" "identity" "injector" "mirror" "policy" "watcher" }}
{{- if and .Values.bus.history.enabled .Values.nats.enabled }}{{ $all = append $all "history" | sortAlpha }}{{ end -}}
{{ $all | toJson }}
{{- end }}

{{/* weft.history.args: of the watcher. */}}
{{- define "weft.history.args" -}}
{{- with .Values.bus.history }}
{{- if .enabled -}}
- -history.enabled
- -history.age={{ .age }}
- -history.bytes={{ .bytes | int64 }}
- -history.domain={{ .domain }}
{{- end }}
{{- end }}
{{- end }}

{{/* weft.history.api: what requests about the history's stream begin with. */}}
{{- define "weft.history.api" -}}
$JS.{{ with .Values.bus.history.domain }}{{ . }}.{{ end }}API
{{- end }}

{{- define "weft.bus.servers" -}}
{{- if .Values.nats.enabled -}}
tls://weft-nats.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}:4222
{{- else -}}
{{ .Values.nats.url }}
{{- end -}}
{{- end }}

{{/* weft.bus.ports: the ports of the bus's servers, commas between. */}}
{{- define "weft.bus.ports" -}}
{{- $ports := list }}
{{- range splitList "," (include "weft.bus.servers" .) }}
{{- $ports = append $ports (regexFind ":[0-9]+$" ((. | trim | urlParse).host) | trimPrefix ":" | default "4222") }}
{{- end }}
{{- $ports | uniq | join "," }}
{{- end }}

{{/* weft.bus.args: {root, service}. */}}
{{- define "weft.bus.args" -}}
- -bus.servers={{ include "weft.bus.servers" .root }}
- -bus.cluster={{ .root.Values.bus.cluster }}
{{- if eq .root.Values.bus.auth "credentials" }}
- -bus.credentials=/var/run/weft/bus/nats.creds
{{- else }}
- -bus.cert=/var/run/weft/bus/tls.crt
- -bus.key=/var/run/weft/bus/tls.key
{{- end }}
- -bus.ca=/var/run/weft/bus/ca.crt
{{- end }}

{{- define "weft.bus.mount" -}}
- {name: bus, mountPath: /var/run/weft/bus, readOnly: true}
{{- end }}

{{- define "weft.bus.volume" -}}
- name: bus
  secret: {secretName: {{ index .root.Values.bus.secrets .service | default (printf "weft-bus-%s" .service) }}}
{{- end }}

{{/* weft.nats.names: the names in the servers' certificate, as JSON. */}}
{{- define "weft.nats.names" -}}
{{- $ns := .Release.Namespace }}{{ $domain := .Values.clusterDomain -}}
{{- list (printf "weft-nats.%s.svc.%s" $ns $domain) (printf "weft-nats.%s.svc" $ns) (printf "weft-nats.%s" $ns) "weft-nats"
    (printf "*.weft-nats-headless.%s.svc.%s" $ns $domain) (printf "*.weft-nats-headless.%s.svc" $ns) "localhost" | toJson }}
{{- end }}

{{/*
weft.nats.users: the permissions, as NATS writes them. A certificate's DNS name is the user. Only the watcher may say
what the log says and ask what Kubernetes should be told, which only policy answers; everybody who keeps a copy asks
others for it and answers them, so those need asks, chunks and replies; whoever only announces itself hears nothing at
all. Replies go to inboxes: an answerer may reply once to what it was asked and nowhere else (allow_responses), an
asker hears its own service's inboxes only.

With a history: the watcher makes its stream and adds checkpoints, cli reads it a message at a time, and nobody may do
anything else with it. No consumers, for a consumer sends what it reads wherever it is told to, as the server. The
server that keeps it comes as a leaf: it hears the log and the questions about its stream, and says answers only.
*/}}
{{- define "weft.nats.users" -}}
{{- $b := printf "weft.%s" .Values.bus.cluster -}}
{{- $leaf := and .Values.bus.history.enabled .Values.nats.enabled }}
{{- $type := ternary ", allowed_connection_types: [\"STANDARD\"]" "" $leaf }}
{{- $keep := "" }}{{ $read := "" }}
{{- if .Values.bus.history.enabled }}
{{- $api := include "weft.history.api" . }}{{ $stream := printf "weft-%s" .Values.bus.cluster }}
{{- $keep = printf ", \"%s.checkpoint\", \"%s.checkpoint.>\", \"%s.STREAM.INFO.%s\", \"%s.STREAM.CREATE.%s\", \"%s.STREAM.UPDATE.%s\"" $b $b $api $stream $api $stream $api $stream }}
{{- $read = printf ", \"%s.STREAM.INFO.%s\", \"%s.DIRECT.GET.%s\"" $api $stream $api $stream }}
{{- end }}
{{- $hear := printf "\"%s.log\", \"%s.ask peers\", \"%s.peer.*\"" $b $b $b -}}
{{- $say := printf "[\"%s.ask\", \"%s.peer.*\", \"%s.presence\"]" $b $b $b -}}
{user: "watcher.bus.weft"{{ $type }}, permissions: {
  publish: ["{{ $b }}.log", "{{ $b }}.ask", "{{ $b }}.peer.*", "{{ $b }}.presence", "{{ $b }}.status"{{ $keep }}],
  subscribe: [{{ $hear }}, "{{ $b }}.presence", "_INBOX.watcher.>"], allow_responses: true}}
{user: "policy.bus.weft"{{ $type }}, permissions: {
  publish: {{ $say }}, subscribe: [{{ $hear }}, "{{ $b }}.status status", "_INBOX.policy.>"], allow_responses: true}}
{{- range list "destination" "injector" "mirror" }}
{user: "{{ . }}.bus.weft"{{ $type }}, permissions: {
  publish: {{ $say }}, subscribe: [{{ $hear }}, "_INBOX.{{ . }}.>"], allow_responses: true}}
{{- end }}
{user: "identity.bus.weft"{{ $type }}, permissions: {
  publish: ["{{ $b }}.presence"], subscribe: {deny: ">"}}}
{user: "heartbeat.bus.weft"{{ $type }}, permissions: {
  publish: ["{{ $b }}.presence"], subscribe: ["{{ $b }}.presence", "{{ $b }}.roll roll"], allow_responses: true}}
{user: "cli.bus.weft"{{ $type }}, permissions: {
  publish: ["{{ $b }}.roll"{{ $read }}], subscribe: ["{{ $b }}.presence", "_INBOX.cli.>"]}}
{{- if $leaf }}
{user: "history.bus.weft", allowed_connection_types: ["LEAFNODE"], permissions: {
  publish: ["_INBOX.watcher.>", "_INBOX.cli.>"],
  subscribe: ["{{ $b }}.log", "{{ $b }}.checkpoint", "{{ $b }}.checkpoint.>", "{{ include "weft.history.api" . }}.>"]}}
{{- end }}
{{- end }}

{{/* weft.nats.tls: of a listener or a connection, with the servers' names. Takes {dir}. */}}
{{- define "weft.nats.tls" -}}
cert_file: {{ .dir }}/tls.crt
key_file: {{ .dir }}/tls.key
ca_file: {{ .dir }}/ca.crt
min_version: "1.3"
timeout: 5
{{- end }}

{{/* weft.nats.conf: no JetStream: nothing that a server holds is relied on, so it has no disk. */}}
{{- define "weft.nats.conf" -}}
{{- $of := .Values.nats -}}
server_name: $POD_NAME
listen: {{ printf "%s:4222" (ternary "0.0.0.0" "[::]" .Values.disableIPv6) | quote }}
http: {{ printf "%s:8222" (ternary "0.0.0.0" "[::]" .Values.disableIPv6) | quote }}
max_payload: 1MB
max_connections: {{ $of.maxConnections | int }}
write_deadline: "5s"
ping_interval: "20s"
ping_max: 3
debug: {{ eq $of.logLevel "debug" }}
tls {
  cert_file: /var/run/nats/tls/tls.crt
  key_file: /var/run/nats/tls/tls.key
  ca_file: /var/run/nats/tls/ca.crt
  verify_and_map: true
  min_version: "1.3"
  timeout: 5
}
authorization {
  users: [
{{ include "weft.nats.users" . | indent 4 }}
  ]
}
{{- if gt (int $of.replicas) 1 }}
cluster {
  name: weft
  listen: {{ printf "%s:6222" (ternary "0.0.0.0" "[::]" .Values.disableIPv6) | quote }}
  no_advertise: true
  connect_retries: 30
  tls {
    cert_file: /var/run/nats/tls/tls.crt
    key_file: /var/run/nats/tls/tls.key
    ca_file: /var/run/nats/tls/ca.crt
    verify: true
    min_version: "1.3"
    timeout: 5
  }
  routes: [
  {{- range $i := until (int $of.replicas) }}
    "tls://weft-nats-{{ $i }}.weft-nats-headless.{{ $.Release.Namespace }}.svc.{{ $.Values.clusterDomain }}:6222"
  {{- end }}
  ]
}
{{- end }}
{{- if .Values.bus.history.enabled }}
leafnodes {
  listen: {{ printf "%s:7422" (ternary "0.0.0.0" "[::]" .Values.disableIPv6) | quote }}
  no_advertise: true
  tls {
    {{- include "weft.nats.tls" (dict "dir" "/var/run/nats/tls") | nindent 4 }}
    verify_and_map: true
  }
}
{{- end }}
{{- with $of.extraConfig }}
{{ . }}
{{- end }}
{{- end }}

{{/*
weft.history.conf: a server of its own keeps the history, so that its disk, its memory and its faults are no part of
the bus. Nobody connects to it but the kubelet.
*/}}
{{- define "weft.history.conf" -}}
server_name: weft-history
listen: "127.0.0.1:4222"
http: {{ printf "%s:8222" (ternary "0.0.0.0" "[::]" .Values.disableIPv6) | quote }}
max_payload: 1MB
jetstream {
  store_dir: /data
  domain: {{ .Values.bus.history.domain | quote }}
  max_memory_store: 1MB
  max_file_store: {{ add (.Values.bus.history.bytes | int64) 16777216 }}
}
leafnodes {
  reconnect: "1s"
  remotes: [
    {
      urls: [
      {{- range $i := until (int .Values.nats.replicas) }}
        "tls://weft-nats-{{ $i }}.weft-nats-headless.{{ $.Release.Namespace }}.svc.{{ $.Values.clusterDomain }}:7422"
      {{- end }}
      ]
      tls {
        {{- include "weft.nats.tls" (dict "dir" "/var/run/weft/bus") | nindent 8 }}
      }
    }
  ]
}
{{- end }}
