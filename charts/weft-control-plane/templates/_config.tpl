{{/*
weft.publicValues: the values as they are in effect, for ConfigMap linkerd-config. Only what is named here is left
out, and test TestNoPrivateKeys looks whether that was enough.
*/}}
{{- define "weft.publicValues" -}}
{{- $anchors := include "weft.trustAnchors" . -}}
{{- $v := omit .Values "_weft" "global" | deepCopy -}}
{{- $_ := set $v "linkerdVersion" (include "weft.version" .) }}
{{- $_ = set $v "identityTrustDomain" (include "weft.trustDomain" .) }}
{{- $_ = set $v "identityTrustAnchorsPEM" $anchors }}
{{- $_ = set $v.identity.issuer "scheme" (include "weft.identity.scheme" .) }}
{{- $_ = set $v.identity.issuer "tls" (dict "crtPEM" .Values._weft.identity.crt) }}
{{- range $hook, $of := include "weft.hooks" . | fromJson }}
{{- $_ := unset (index $v $hook) "keyPEM" }}
{{- $_ = unset (index $v $hook) "crtPEM" }}
{{- end }}
{{- $_ = unset $v.bus.tls "caKeyPEM" }}
{{- $_ = set $v.proxy.image "name" ($v.proxy.image.name | default (printf "%s/proxy" $v.registry)) }}
{{- $_ = set $v.proxy.image "version" ($v.proxy.image.version | default $v.linkerdVersion) }}
{{- $_ = set $v.debugContainer.image "name" ($v.debugContainer.image.name | default (printf "%s/debug" $v.registry)) }}
{{- $_ = set $v.debugContainer.image "version" ($v.debugContainer.image.version | default $v.linkerdVersion) }}
{{- toYaml $v }}
{{- end }}
