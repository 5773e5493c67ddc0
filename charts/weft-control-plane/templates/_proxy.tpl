{{/*
The sidecar of the control plane's own pods. The injector makes the same for everybody else's; here it is
rendered, because the injector must not be needed for its own start.

All of them take one dict: {root, ports: "8086,9996", native, await, requireTLS, local: "destination"}; local
names the service that is in the same pod and is asked over loopback, without TLS.
*/}}

{{/* weft.proxyEnv: in Linkerd's order; a variable may refer only to those before it. */}}
{{- define "weft.proxyEnv" -}}
{{- $v := .root.Values }}{{ $p := $v.proxy }}{{ $ns := .root.Release.Namespace }}{{ $svc := printf "%s.svc.%s." $ns $v.clusterDomain }}
{{- $any := ternary "0.0.0.0" "[::]" $v.disableIPv6 }}
- name: _pod_name
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: _pod_ns
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- name: _pod_uid
  valueFrom: {fieldRef: {fieldPath: metadata.uid}}
- name: _pod_ip
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
- name: _pod_nodeName
  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
- name: _pod_containerName
  value: linkerd-proxy
{{- $cores := $p.cores | default $p.runtime.workers.minimum | int }}
- name: LINKERD2_PROXY_CORES
  value: {{ max $cores 1 | quote }}
- name: LINKERD2_PROXY_CORES_MIN
  value: {{ max $cores 1 | quote }}
{{- if not $p.cores }}
{{- with $p.runtime.workers.maximum }}
- name: LINKERD2_PROXY_CORES_MAX
  value: {{ . | int | quote }}
{{- end }}
{{- with $p.runtime.workers.maximumCPURatio }}
- name: LINKERD2_PROXY_CORES_MAX_RATIO
  value: {{ . | quote }}
{{- end }}
{{- end }}
{{- with $p.requireIdentityOnInboundPorts }}
- name: LINKERD2_PROXY_INBOUND_PORTS_REQUIRE_IDENTITY
  value: {{ . | quote }}
{{- end }}
{{- with .requireTLS }}
- name: LINKERD2_PROXY_INBOUND_PORTS_REQUIRE_TLS
  value: {{ . | quote }}
{{- end }}
- name: LINKERD2_PROXY_SHUTDOWN_ENDPOINT_ENABLED
  value: {{ $p.enableShutdownEndpoint | quote }}
- name: LINKERD2_PROXY_LOG
  value: {{ printf "%s%s" $p.logLevel (ternary "" ",[{headers}]=off,[{request}]=off" (eq $p.logHTTPHeaders "insecure")) | quote }}
- name: LINKERD2_PROXY_LOG_FORMAT
  value: {{ $p.logFormat | quote }}
- name: LINKERD2_PROXY_DESTINATION_SVC_ADDR
  value: {{ ternary "localhost.:8086" (printf "linkerd-dst-headless.%s:8086" $svc) (eq .local "destination") }}
- name: LINKERD2_PROXY_DESTINATION_PROFILE_NETWORKS
  value: {{ $v.clusterNetworks | quote }}
- name: LINKERD2_PROXY_POLICY_CLUSTER_NETWORKS
  value: {{ $v.clusterNetworks | quote }}
- name: LINKERD2_PROXY_POLICY_SVC_ADDR
  value: {{ ternary "localhost.:8090" (printf "linkerd-policy.%s:8090" $svc) (eq .local "policy") }}
- name: LINKERD2_PROXY_POLICY_WORKLOAD
  value: |
    {"ns":"$(_pod_ns)", "pod":"$(_pod_name)"}
- name: LINKERD2_PROXY_INBOUND_DEFAULT_POLICY
  value: all-unauthenticated
{{- with $p.control.streams.initialTimeout }}
- name: LINKERD2_PROXY_CONTROL_STREAM_INITIAL_TIMEOUT
  value: {{ . | quote }}
{{- end }}
{{- with $p.control.streams.idleTimeout }}
- name: LINKERD2_PROXY_CONTROL_STREAM_IDLE_TIMEOUT
  value: {{ . | quote }}
{{- end }}
{{- with $p.control.streams.lifetime }}
- name: LINKERD2_PROXY_CONTROL_STREAM_LIFETIME
  value: {{ . | quote }}
{{- end }}
{{- range $name, $value := dict "INBOUND_CONNECT_TIMEOUT" $p.inboundConnectTimeout "OUTBOUND_CONNECT_TIMEOUT" $p.outboundConnectTimeout
    "OUTBOUND_DISCOVERY_IDLE_TIMEOUT" $p.outboundDiscoveryCacheUnusedTimeout "INBOUND_DISCOVERY_IDLE_TIMEOUT" $p.inboundDiscoveryCacheUnusedTimeout }}
{{- with $value }}
- name: LINKERD2_PROXY_{{ $name }}
  value: {{ . | quote }}
{{- end }}
{{- end }}
{{- if $p.disableOutboundProtocolDetectTimeout }}
- name: LINKERD2_PROXY_OUTBOUND_DETECT_TIMEOUT
  value: 365d
{{- end }}
{{- if $p.disableInboundProtocolDetectTimeout }}
- name: LINKERD2_PROXY_INBOUND_DETECT_TIMEOUT
  value: 365d
{{- end }}
- name: LINKERD2_PROXY_CONTROL_LISTEN_ADDR
  value: {{ printf "%s:%d" $any (int $p.ports.control) | quote }}
- name: LINKERD2_PROXY_ADMIN_LISTEN_ADDR
  value: {{ printf "%s:%d" $any (int $p.ports.admin) | quote }}
- name: LINKERD2_PROXY_OUTBOUND_LISTEN_ADDR
  value: {{ printf "127.0.0.1:%d" (int $p.ports.outbound) | quote }}
- name: LINKERD2_PROXY_OUTBOUND_LISTEN_ADDRS
  value: {{ printf "127.0.0.1:%d%s" (int $p.ports.outbound) (ternary "" (printf ",[::1]:%d" (int $p.ports.outbound)) $v.disableIPv6) | quote }}
- name: LINKERD2_PROXY_INBOUND_LISTEN_ADDR
  value: {{ printf "%s:%d" $any (int $p.ports.inbound) | quote }}
- name: LINKERD2_PROXY_INBOUND_IPS
  valueFrom: {fieldRef: {fieldPath: status.podIPs}}
- name: LINKERD2_PROXY_INBOUND_PORTS
  value: {{ .ports | quote }}
- name: LINKERD2_PROXY_DESTINATION_PROFILE_SUFFIXES
  value: {{ ternary "." (printf "svc.%s." $v.clusterDomain) $p.enableExternalProfiles | quote }}
- name: LINKERD2_PROXY_INBOUND_ACCEPT_KEEPALIVE
  value: 10000ms
- name: LINKERD2_PROXY_OUTBOUND_CONNECT_KEEPALIVE
  value: 10000ms
- name: LINKERD2_PROXY_INBOUND_ACCEPT_USER_TIMEOUT
  value: 30s
- name: LINKERD2_PROXY_OUTBOUND_CONNECT_USER_TIMEOUT
  value: 30s
- name: LINKERD2_PROXY_OUTBOUND_METRICS_HOSTNAME_LABELS
  value: {{ $p.metrics.hostnameLabels | quote }}
{{- if $p.tracing.enabled }}
- name: LINKERD2_PROXY_TRACE_ATTRIBUTES_PATH
  value: /var/run/linkerd/podinfo/labels
- name: LINKERD2_PROXY_TRACE_ANNOTATIONS_PATH
  value: /var/run/linkerd/podinfo/annotations
- name: LINKERD2_PROXY_TRACE_PROTOCOL
  value: opentelemetry
- name: LINKERD2_PROXY_TRACE_SERVICE_NAME
  value: {{ $p.tracing.traceServiceName | default "linkerd-proxy" | quote }}
- name: LINKERD2_PROXY_TRACE_COLLECTOR_SVC_ADDR
  value: {{ $p.tracing.collector.endpoint | quote }}
{{- with $p.tracing.collector.meshIdentity }}
{{- if and .serviceAccountName .namespace }}
- name: LINKERD2_PROXY_TRACE_COLLECTOR_SVC_NAME
  value: {{ include "weft.identityOf" (dict "root" $.root "sa" .serviceAccountName "ns" .namespace) }}
{{- end }}
{{- end }}
- name: LINKERD2_PROXY_TRACE_EXTRA_ATTRIBUTES
  value: |
    {{- $extra := merge (dict) $p.tracing.labels (dict "k8s.pod.ip" "$(_pod_ip)" "k8s.pod.uid" "$(_pod_uid)" "k8s.container.name" "$(_pod_containerName)") }}
    {{- range $k, $val := $extra }}
    {{ $k }}={{ $val }}
    {{- end }}
{{- end }}
{{- range $side := list "inbound" "outbound" }}
{{- range $scope, $protos := index $p $side }}
{{- range $proto, $params := $protos }}
{{- range $param, $value := $params }}
- name: LINKERD2_PROXY_{{ upper $side }}_{{ $scope | snakecase | upper }}_{{ $proto | upper }}_{{ $param | snakecase | upper }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- with $p.opaquePorts }}
- name: LINKERD2_PROXY_INBOUND_PORTS_DISABLE_PROTOCOL_DETECTION
  value: {{ $.opaque | default . | quote }}
{{- end }}
- name: LINKERD2_PROXY_DESTINATION_CONTEXT
  value: |
    {"ns":"$(_pod_ns)", "nodeName":"$(_pod_nodeName)", "pod":"$(_pod_name)"}
- name: _pod_sa
  valueFrom: {fieldRef: {fieldPath: spec.serviceAccountName}}
- name: _l5d_ns
  value: {{ $ns }}
- name: _l5d_trustdomain
  value: {{ include "weft.trustDomain" .root }}
- name: LINKERD2_PROXY_IDENTITY_DIR
  value: /var/run/linkerd/identity/end-entity
- name: LINKERD2_PROXY_IDENTITY_TRUST_ANCHORS
  valueFrom: {configMapKeyRef: {name: linkerd-identity-trust-roots, key: ca-bundle.crt}}
- name: LINKERD2_PROXY_IDENTITY_TOKEN_FILE
  value: /var/run/secrets/tokens/linkerd-identity-token
- name: LINKERD2_PROXY_IDENTITY_SVC_ADDR
  value: {{ ternary "localhost.:8080" (printf "linkerd-identity-headless.%s:8080" $svc) (eq .local "identity") }}
- name: LINKERD2_PROXY_IDENTITY_LOCAL_NAME
  value: {{ include "weft.identityOf" (dict "root" .root "sa" "$(_pod_sa)" "ns" "$(_pod_ns)") }}
- name: LINKERD2_PROXY_IDENTITY_SVC_NAME
  value: {{ include "weft.identityOf" (dict "root" .root "sa" "linkerd-identity" "ns" $ns) }}
- name: LINKERD2_PROXY_DESTINATION_SVC_NAME
  value: {{ include "weft.identityOf" (dict "root" .root "sa" "linkerd-destination" "ns" $ns) }}
- name: LINKERD2_PROXY_POLICY_SVC_NAME
  value: {{ include "weft.identityOf" (dict "root" .root "sa" "linkerd-destination" "ns" $ns) }}
{{- with $p.accessLog }}
- name: LINKERD2_PROXY_ACCESS_LOG
  value: {{ . | quote }}
{{- end }}
{{- with $p.shutdownGracePeriod }}
- name: LINKERD2_PROXY_SHUTDOWN_GRACE_PERIOD
  value: {{ . | quote }}
{{- end }}
{{- with $p.additionalEnv }}
{{ toYaml . }}
{{- end }}
{{- with $p.experimentalEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "weft.proxy" -}}
{{- $v := .root.Values }}{{ $p := $v.proxy -}}
- name: linkerd-proxy
  image: {{ include "weft.image" (dict "root" .root "image" $p.image "short" "proxy") }}
  imagePullPolicy: {{ include "weft.pullPolicy" (dict "root" .root "image" $p.image) }}
  env:
    {{- include "weft.proxyEnv" . | trim | nindent 4 }}
  ports:
    - {name: linkerd-proxy, containerPort: {{ $p.ports.inbound | int }}}
    - {name: linkerd-admin, containerPort: {{ $p.ports.admin | int }}}
  livenessProbe:
    httpGet: {path: /live, port: {{ $p.ports.admin | int }}}
    {{- toYaml $p.livenessProbe | nindent 4 }}
  readinessProbe:
    httpGet: {path: /ready, port: {{ $p.ports.admin | int }}}
    {{- toYaml $p.readinessProbe | nindent 4 }}
  {{- if .native }}
  {{- if .await }}
  startupProbe:
    httpGet: {path: /ready, port: {{ $p.ports.admin | int }}}
    {{- toYaml $p.startupProbe | nindent 4 }}
  {{- end }}
  restartPolicy: Always
  {{- else if .await }}
  lifecycle:
    postStart:
      exec:
        command: [/usr/lib/linkerd/linkerd-await, --timeout=2m, --port={{ $p.ports.admin | int }}]
  {{- end }}
  resources:
    {{- include "weft.resources" (.resources | default $p.resources) | nindent 4 }}
  securityContext:
    {{- if $p.securityContext }}
    {{- toYaml $p.securityContext | nindent 4 }}
    {{- else }}
    allowPrivilegeEscalation: false
    capabilities:
      drop: [ALL]
    readOnlyRootFilesystem: true
    runAsNonRoot: true
    runAsUser: {{ $p.uid | int64 }}
    {{- if ge ($p.gid | int64) 0 }}
    runAsGroup: {{ $p.gid | int64 }}
    {{- end }}
    seccompProfile:
      type: RuntimeDefault
    {{- end }}
  terminationMessagePolicy: FallbackToLogsOnError
  volumeMounts:
    - {name: linkerd-identity-end-entity, mountPath: /var/run/linkerd/identity/end-entity}
    {{- if $p.tracing.enabled }}
    - {name: linkerd-podinfo, mountPath: /var/run/linkerd/podinfo}
    {{- end }}
    - {name: linkerd-identity-token, mountPath: /var/run/secrets/tokens}
{{- end }}

{{/* weft.skipOutbound: ports that go past the proxy: the API server's and the bus's. */}}
{{- define "weft.skipOutbound" -}}
{{- $ports := list }}
{{- with .Values.proxyInit.ignoreOutboundPorts }}{{ $ports = splitList "," . }}{{ end }}
{{- with .Values.proxyInit.kubeAPIServerPorts }}{{ $ports = concat $ports (splitList "," .) }}{{ end }}
{{- join "," (concat $ports (splitList "," (include "weft.bus.ports" .)) | uniq) }}
{{- end }}

{{/* weft.redirect: what sends the pod's traffic through the proxy, or, with the CNI plugin, proves that something does. */}}
{{- define "weft.redirect" -}}
{{- if .root.Values.cniEnabled }}{{ include "weft.validator" . }}{{ else }}{{ include "weft.init" . }}{{ end }}
{{- end }}

{{- define "weft.init" -}}
{{- $v := .root.Values }}{{ $p := $v.proxy }}{{ $i := $v.proxyInit -}}
{{- $privileged := or (gt (int $i.closeWaitTimeoutSecs) 0) $i.privileged -}}
- name: linkerd-init
  image: {{ include "weft.image" (dict "root" .root "image" $p.image "short" "proxy") }}
  imagePullPolicy: {{ include "weft.pullPolicy" (dict "root" .root "image" $p.image) }}
  command: [/usr/lib/linkerd/linkerd2-proxy-init]
  args:
    {{- if eq $i.iptablesMode "nft" }}
    - --firewall-bin-path
    - iptables-nft
    - --firewall-save-bin-path
    - iptables-nft-save
    {{- end }}
    {{- if $v.disableIPv6 }}
    - --ipv6=false
    {{- end }}
    - --incoming-proxy-port
    - {{ $p.ports.inbound | int | quote }}
    - --outgoing-proxy-port
    - {{ $p.ports.outbound | int | quote }}
    - --proxy-uid
    - {{ $p.uid | int64 | quote }}
    {{- if ge ($p.gid | int64) 0 }}
    - --proxy-gid
    - {{ $p.gid | int64 | quote }}
    {{- end }}
    - --inbound-ports-to-ignore
    - {{ printf "%d,%d%s" (int $p.ports.control) (int $p.ports.admin) (empty $i.ignoreInboundPorts | ternary "" (printf ",%s" $i.ignoreInboundPorts)) | quote }}
    - --outbound-ports-to-ignore
    - {{ include "weft.skipOutbound" .root | quote }}
    {{- if gt (int $i.closeWaitTimeoutSecs) 0 }}
    - --timeout-close-wait-secs
    - {{ $i.closeWaitTimeoutSecs | int | quote }}
    {{- end }}
    {{- with $i.logFormat }}
    - --log-format
    - {{ . }}
    {{- end }}
    {{- with $i.logLevel }}
    - --log-level
    - {{ . }}
    {{- end }}
    {{- with $i.skipSubnets }}
    - --subnets-to-ignore
    - {{ . | quote }}
    {{- end }}
  resources:
    {{- include "weft.resources" (.resources | default $p.resources) | nindent 4 }}
  securityContext:
    allowPrivilegeEscalation: {{ $privileged }}
    capabilities:
      add: [NET_ADMIN, NET_RAW]
      drop: [ALL]
    privileged: {{ $privileged }}
    readOnlyRootFilesystem: true
    runAsNonRoot: {{ not $i.runAsRoot }}
    runAsUser: {{ ternary 0 ($i.runAsUser | default 65534) $i.runAsRoot | int64 }}
    runAsGroup: {{ ternary 0 ($i.runAsGroup | default 65534) $i.runAsRoot | int64 }}
    seccompProfile:
      type: RuntimeDefault
  terminationMessagePolicy: FallbackToLogsOnError
  volumeMounts:
    - {name: {{ $i.xtMountPath.name }}, mountPath: {{ $i.xtMountPath.mountPath }}}
{{- end }}

{{- define "weft.validator" -}}
{{- $v := .root.Values }}{{ $n := $v.networkValidator -}}
- name: linkerd-network-validator
  image: {{ include "weft.image" (dict "root" .root "image" $v.proxy.image "short" "proxy") }}
  imagePullPolicy: {{ include "weft.pullPolicy" (dict "root" .root "image" $v.proxy.image) }}
  command: [/usr/lib/linkerd/linkerd2-network-validator]
  args:
    - --log-format
    - {{ $n.logFormat }}
    - --log-level
    - {{ $n.logLevel }}
    - --connect-addr
    - {{ $n.connectAddr | default (ternary "1.1.1.1:20001" "[fd00::1]:20001" $v.disableIPv6) | quote }}
    - --listen-addr
    - {{ $n.listenAddr | default (printf "%s:%d" (ternary "0.0.0.0" "[::]" $v.disableIPv6) (int $v.proxy.ports.outbound)) | quote }}
    - --timeout
    - {{ $n.timeout }}
  resources:
    {{- include "weft.resources" (.resources | default $v.proxy.resources) | nindent 4 }}
  securityContext:
    allowPrivilegeEscalation: false
    capabilities:
      drop: [ALL]
    readOnlyRootFilesystem: true
    runAsNonRoot: true
    runAsUser: 65534
    runAsGroup: 65534
    seccompProfile:
      type: RuntimeDefault
  terminationMessagePolicy: FallbackToLogsOnError
{{- end }}

{{/* weft.proxyVolumes: the token is for the mesh's identity service alone; the API server does not take it. */}}
{{- define "weft.proxyVolumes" -}}
{{- if not .Values.cniEnabled -}}
- name: {{ .Values.proxyInit.xtMountPath.name }}
  emptyDir: {}
{{ end -}}
- name: linkerd-identity-end-entity
  emptyDir: {medium: Memory}
{{- if .Values.proxy.tracing.enabled }}
- name: linkerd-podinfo
  downwardAPI:
    items:
      - {path: labels, fieldRef: {fieldPath: metadata.labels}}
      - {path: annotations, fieldRef: {fieldPath: metadata.annotations}}
{{- end }}
- name: linkerd-identity-token
  projected:
    sources:
      - serviceAccountToken: {audience: identity.l5d.io, expirationSeconds: 86400, path: linkerd-identity-token}
{{- end }}
