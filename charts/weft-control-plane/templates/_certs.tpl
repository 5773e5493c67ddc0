{{/*
Certificates. Each of the three kinds (identity's issuer, a webhook's (_hooks.tpl), the bus's) is given, made here, or
made by cert-manager. What is made here is made once a render and remembered in .Values (key _weft, never shown), so that any
template may ask first; and it is kept over upgrades, because the cluster is looked at before anything is made.
*/}}

{{/* weft.memo: makes the memory. Nothing is made from values that can't work together. */}}
{{- define "weft.memo" -}}
{{- if not (hasKey .Values "_weft") }}
{{- include "weft.check" . }}
{{- $_ := set .Values "_weft" dict }}
{{- end }}
{{- end }}

{{/* weft.trustAnchors: the bundle that all proxies trust, PEM; "" when somebody else writes its ConfigMap. */}}
{{- define "weft.trustAnchors" -}}
{{- include "weft.identity.make" . -}}
{{- .Values._weft.identity.anchors -}}
{{- end }}

{{/* weft.identity.make: fills _weft.identity with {anchors, crt, key}; crt is "" when the Secret is not ours. */}}
{{- define "weft.identity.make" -}}
{{- include "weft.memo" . }}
{{- if not (hasKey .Values._weft "identity") }}
{{- $issuer := .Values.identity.issuer }}{{ $ns := .Release.Namespace }}
{{- $got := dict "anchors" (.Values.identityTrustAnchorsPEM | trim) "crt" "" "key" "" }}
{{- if eq (include "weft.identity.scheme" .) "linkerd.io/tls" }}
{{- if $issuer.tls.crtPEM }}
{{- $_ := set $got "crt" ($issuer.tls.crtPEM | trim) }}{{ $_ = set $got "key" ($issuer.tls.keyPEM | trim) }}
{{- else }}
{{- $secret := lookup "v1" "Secret" $ns "linkerd-identity-issuer" | default dict }}
{{- $roots := lookup "v1" "ConfigMap" $ns "linkerd-identity-trust-roots" | default dict }}
{{- $data := $secret.data | default dict }}
{{- if index $data "crt.pem" }}
{{- $_ := set $got "crt" (index $data "crt.pem" | b64dec | trim) }}{{ $_ = set $got "key" (index $data "key.pem" | b64dec | trim) }}
{{- if not $got.anchors }}
{{- $_ = set $got "anchors" (index ($roots.data | default dict) "ca-bundle.crt" | default (index $data "crt.pem" | b64dec) | trim) }}
{{- end }}
{{- else if $data }}
{{- fail "Secret linkerd-identity-issuer has no crt.pem.\n  why:  it was not made by this chart; a Secret of cert-manager's holds tls.crt\n  next: set identity.issuer.scheme=kubernetes.io/tls and identityTrustAnchorsPEM, or delete the Secret to have a new issuer made" }}
{{- else }}
{{- $made := genCAWithKey (printf "identity.%s.%s" $ns (include "weft.trustDomain" .)) 365 (genPrivateKey "ecdsa") }}
{{- $_ := set $got "crt" ($made.Cert | trim) }}{{ $_ = set $got "key" ($made.Key | trim) }}{{ $_ = set $got "anchors" ($made.Cert | trim) }}
{{- end }}
{{- end }}
{{- end }}
{{- $_ := set .Values._weft "identity" $got }}
{{- end }}
{{- end }}

{{/* weft.identity.scheme: how the issuer's Secret is laid out; cert-manager writes only one kind. */}}
{{- define "weft.identity.scheme" -}}
{{ ternary "kubernetes.io/tls" .Values.identity.issuer.scheme .Values.identity.issuer.certManager.enabled }}
{{- end }}

{{/* weft.fresh: "yes" while a Secret that was made here has more than half its life before it. Takes {secret}. */}}
{{- define "weft.fresh" -}}
{{- $at := index (((.secret).metadata).annotations | default dict) "charts.weftmesh.io/renew-after" | default "0" -}}
{{- if gt (int64 $at) (now | unixEpoch | int64) }}yes{{ end -}}
{{- end }}

{{/* weft.renewAfter: half a year from now, in seconds of Unix time; what is made here lives a year. */}}
{{- define "weft.renewAfter" -}}
{{ add (now | unixEpoch | int64) 15768000 }}
{{- end }}

{{/* weft.bus.make: fills _weft.bus with a dict of Secrets by name, each {crt, key, ca, renewAfter}. */}}
{{- define "weft.bus.make" -}}
{{- include "weft.memo" . }}
{{- if not (hasKey .Values._weft "bus") }}
{{- $ns := .Release.Namespace }}{{ $tls := .Values.bus.tls }}{{ $out := dict }}
{{- $ca := dict }}
{{- $kept := lookup "v1" "Secret" $ns "weft-bus-ca" | default dict }}{{ $data := $kept.data | default dict }}
{{- if $tls.caPEM }}
{{- $ca = buildCustomCert ($tls.caPEM | b64enc) ($tls.caKeyPEM | b64enc) }}
{{- else if index $data "tls.crt" }}
{{- $ca = buildCustomCert (index $data "tls.crt") (index $data "tls.key") }}
{{- else }}
{{- $ca = genCAWithKey (printf "bus.%s" $ns) 3650 (genPrivateKey "ecdsa") }}
{{- end }}
{{- $_ := set $out "weft-bus-ca" (dict "crt" ($ca.Cert | trim) "key" ($ca.Key | trim) "ca" "" "renewAfter" "") }}
{{- $names := dict "weft-nats-tls" (include "weft.nats.names" . | fromJsonArray) }}
{{- range include "weft.bus.services" . | fromJsonArray }}
{{- $_ := set $names (printf "weft-bus-%s" .) (list (printf "%s.bus.weft" .)) }}
{{- end }}
{{- range $name := keys $names | sortAlpha }}
{{- $hosts := index $names $name }}
{{- $secret := lookup "v1" "Secret" $ns $name | default dict }}{{ $data := $secret.data | default dict }}
{{- if and (index $data "tls.crt") (eq (index $data "ca.crt" | default "" | b64dec | trim) ($ca.Cert | trim)) (include "weft.fresh" (dict "secret" $secret)) }}
{{- $_ := set $out $name (dict "crt" (index $data "tls.crt" | b64dec | trim) "key" (index $data "tls.key" | b64dec | trim)
    "ca" ($ca.Cert | trim) "renewAfter" (index $secret.metadata.annotations "charts.weftmesh.io/renew-after")) }}
{{- else }}
{{- $made := genSignedCertWithKey (first $hosts) nil $hosts 365 $ca (genPrivateKey "ecdsa") }}
{{- $_ := set $out $name (dict "crt" ($made.Cert | trim) "key" ($made.Key | trim) "ca" ($ca.Cert | trim) "renewAfter" (include "weft.renewAfter" $)) }}
{{- end }}
{{- end }}
{{- $_ := set .Values._weft "bus" $out }}
{{- end }}
{{- end }}
