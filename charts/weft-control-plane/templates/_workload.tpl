{{/* What every pod of the control plane has: where it runs, as whom, and how it is replaced. */}}

{{/* weft.restricted: the security context of every container but linkerd-init. Takes {root, uid, gid}. */}}
{{- define "weft.restricted" -}}
allowPrivilegeEscalation: false
capabilities:
  drop: [ALL]
readOnlyRootFilesystem: true
runAsNonRoot: true
runAsUser: {{ .root.Values.controllerUID | int64 }}
{{- if ge (.root.Values.controllerGID | int64) 0 }}
runAsGroup: {{ .root.Values.controllerGID | int64 }}
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/* weft.strategy: how a Deployment's pods are replaced. */}}
{{- define "weft.strategy" -}}
revisionHistoryLimit: {{ .Values.revisionHistoryLimit | int }}
{{- with .Values.deploymentStrategy }}
strategy:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* weft.placement: of a pod. Takes {root, component}. */}}
{{- define "weft.placement" -}}
{{- $v := .root.Values }}
{{- with $v.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $v.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $v.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with $v.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $v.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if or $v.enablePodAntiAffinity $v.nodeAffinity }}
affinity:
  {{- with $v.nodeAffinity }}
  nodeAffinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if $v.enablePodAntiAffinity }}
  podAntiAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      - topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            linkerd.io/control-plane-component: {{ .component }}
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: topology.kubernetes.io/zone
          labelSelector:
            matchLabels:
              linkerd.io/control-plane-component: {{ .component }}
  {{- end }}
{{- end }}
{{- if $v.enableTopologySpread }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: topology.kubernetes.io/zone
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        linkerd.io/control-plane-component: {{ .component }}
{{- end }}
{{- end }}

{{/* weft.podLabels: {root, component, deployment}; deployment only for meshed pods. */}}
{{- define "weft.podLabels" -}}
{{ include "weft.labels" . }}
{{- if .deployment }}
linkerd.io/workload-ns: {{ .root.Release.Namespace }}
linkerd.io/proxy-deployment: {{ .deployment }}
{{- end }}
{{- with .root.Values.podLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* weft.podAnnotations: {root, of, meshed, opaque, skipOutbound}; of is the component's values. */}}
{{- define "weft.podAnnotations" -}}
{{ include "weft.annotations" .root }}
cluster-autoscaler.kubernetes.io/safe-to-evict: "true"
{{- if .meshed }}
config.linkerd.io/default-inbound-policy: all-unauthenticated
linkerd.io/proxy-version: {{ .root.Values.proxy.image.version | default (include "weft.version" .root) | quote }}
linkerd.io/trust-root-sha256: {{ include "weft.trustAnchors" .root | sha256sum }}
{{- if .root.Values.cniEnabled }}
config.linkerd.io/skip-outbound-ports: {{ include "weft.skipOutbound" .root | quote }}
{{- end }}
{{- end }}
{{- with .opaque }}
config.linkerd.io/opaque-ports: {{ . | quote }}
{{- end }}
{{- with .root.Values.podAnnotations }}
{{ toYaml . }}
{{- end }}
{{- with .of.podAnnotations }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* weft.probes: {root, of, port}: readiness and liveness of one of our processes. */}}
{{- define "weft.probes" -}}
livenessProbe:
  httpGet: {path: /live, port: {{ .port }}}
  initialDelaySeconds: 10
  failureThreshold: {{ .of.livenessProbe.failureThreshold | int }}
  timeoutSeconds: {{ .of.livenessProbe.timeoutSeconds | int }}
readinessProbe:
  httpGet: {path: /ready, port: {{ .port }}}
  failureThreshold: {{ .of.readinessProbe.failureThreshold | int }}
  timeoutSeconds: {{ .of.readinessProbe.timeoutSeconds | int }}
{{- end }}

{{/* weft.obsArgs: {root, port}: logs, and the admin server open to probes and scrapers; it shows profiles to loopback only. */}}
{{- define "weft.obsArgs" -}}
- -obs.admin={{ include "weft.any" . }}
- -obs.log-level={{ .level | default .root.Values.controllerLogLevel }}
- -obs.log-format={{ ternary "json" "text" (eq .root.Values.controllerLogFormat "json") }}
{{- end }}

{{/* weft.pdb: {root, component, name}. */}}
{{- define "weft.pdb" -}}
{{- if .root.Values.enablePodDisruptionBudget }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "weft.labels" . | nindent 4 }}
  annotations:
    {{- include "weft.annotations" .root | nindent 4 }}
spec:
  maxUnavailable: {{ .root.Values.podDisruptionBudget.maxUnavailable }}
  selector:
    matchLabels:
      linkerd.io/control-plane-component: {{ .component }}
{{- end }}
{{- end }}

{{/* weft.hpa: {root, component, deployment, of}. */}}
{{- define "weft.hpa" -}}
{{- with .of.autoscaling }}
{{- if .enabled }}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ $.deployment }}
  namespace: {{ $.root.Release.Namespace }}
  labels:
    {{- include "weft.labels" $ | nindent 4 }}
  annotations:
    {{- include "weft.annotations" $.root | nindent 4 }}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: {{ $.deployment }}}
  minReplicas: {{ .minReplicas | int }}
  maxReplicas: {{ .maxReplicas | int }}
  metrics:
    - type: Resource
      resource:
        name: cpu
        target: {type: Utilization, averageUtilization: {{ .targetCPUUtilizationPercentage | int }}}
    {{- with .metrics }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .behavior }}
  behavior:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* weft.serviceAccount: {root, component, name}: an account without a token of its own. */}}
{{- define "weft.serviceAccount" -}}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .account }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "weft.labels" . | nindent 4 }}
  annotations:
    {{- include "weft.annotations" .root | nindent 4 }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
automountServiceAccountToken: false
{{- end }}

{{/* weft.families: both address families for a Service where the cluster has both. */}}
{{- define "weft.families" -}}
type: ClusterIP
{{- if not .Values.disableIPv6 }}
ipFamilyPolicy: PreferDualStack
{{- end }}
{{- end }}

{{/* weft.env: {root, of}: more environment for our processes, such as where traces go. */}}
{{- define "weft.env" -}}
{{- $env := concat .root.Values.controllerEnv (.of.additionalEnv | default list) }}
{{- with $env -}}
env:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* weft.checksum: {of}: a digest of what a process reads at its start only. */}}
{{- define "weft.checksum" -}}
{{ toJson .of | sha256sum }}
{{- end }}
