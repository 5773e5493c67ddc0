{{/* weft.crd: metadata of a definition. */}}
{{- define "weft.crd" -}}
labels:
  app.kubernetes.io/part-of: Linkerd
  app.kubernetes.io/managed-by: {{ .Release.Service }}
  linkerd.io/control-plane-ns: {{ .Release.Namespace }}
  {{- with .Values.commonLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  linkerd.io/created-by: weft/{{ .Release.Service | lower }} {{ .Chart.AppVersion }}
  {{- if .Values.keep }}
  helm.sh/resource-policy: keep
  {{- end }}
{{- end }}

{{/* weft.networks: a list of networks, each with holes. Takes a description. */}}
{{- define "weft.networks" -}}
description: {{ . }}
type: array
items:
  type: object
  required: [cidr]
  properties:
    cidr: {description: "A network, such as 10.0.0.0/8, or one address.", type: string}
    except:
      description: Networks inside cidr that are left out.
      type: array
      items: {type: string}
{{- end }}

{{/* weft.selector: a label selector. Takes a description. */}}
{{- define "weft.selector" -}}
description: {{ . }}
type: object
properties:
  matchLabels:
    description: Labels and the values that they must have.
    type: object
    additionalProperties: {type: string}
  matchExpressions:
    description: Conditions that must all hold.
    type: array
    items:
      type: object
      required: [key, operator]
      properties:
        key: {type: string}
        operator: {type: string, enum: [In, NotIn, Exists, DoesNotExist]}
        values: {type: array, items: {type: string}}
{{- end }}

{{/* weft.conditions: of a status. */}}
{{- define "weft.conditions" -}}
description: What became of the object, by type.
type: array
items:
  type: object
  required: [type, status, reason, message, lastTransitionTime]
  properties:
    type: {type: string, maxLength: 316, pattern: '^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$'}
    status: {type: string, enum: ["True", "False", Unknown]}
    reason: {type: string, minLength: 1, maxLength: 1024, pattern: '^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$'}
    message: {type: string, maxLength: 32768}
    lastTransitionTime: {type: string, format: date-time}
    observedGeneration: {type: integer, format: int64, minimum: 0}
{{- end }}

{{/* weft.reference: to an object. Takes {description, required (JSON), namespace (bool)}. */}}
{{- define "weft.reference" -}}
{{- with .description }}
description: {{ . }}
{{- end }}
type: object
required: {{ .required }}
properties:
  group: {description: "API group; empty for the core group.", type: string, maxLength: 253, pattern: '^$|^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$'}
  kind: {type: string, minLength: 1, maxLength: 63, pattern: '^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$'}
  name: {type: string, minLength: 1, maxLength: 253}
  {{- if .namespace }}
  namespace: {description: "Empty for the referring object's own.", type: string, minLength: 1, maxLength: 253}
  {{- end }}
{{- end }}
