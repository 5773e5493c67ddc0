{{/* weft.check: what cannot work together is refused here, with what, why and next. */}}
{{- define "weft.check" -}}
{{- $v := .Values }}{{ $problems := list }}
{{- range splitList "," $v.clusterNetworks }}
{{- if not (regexMatch "^ *([0-9]{1,3}(\\.[0-9]{1,3}){3}/([0-9]|[12][0-9]|3[0-2])|[0-9a-fA-F:.]*:[0-9a-fA-F:.]*/([0-9]{1,2}|1[01][0-9]|12[0-8])) *$" .) }}
{{- $problems = append $problems (printf "clusterNetworks: %q is not a network.\n  why:  proxies ask about addresses in these networks only, each as CIDR\n  next: write it like 10.0.0.0/8, with commas between several" .) }}
{{- end }}
{{- end }}
{{- $issuer := $v.identity.issuer }}
{{- if and $issuer.tls.crtPEM (not $issuer.tls.keyPEM) }}
{{- $problems = append $problems "identity.issuer.tls: there is a certificate but no key.\n  why:  identity signs with the issuer's key\n  next: give identity.issuer.tls.keyPEM too, or neither to have both made" }}
{{- end }}
{{- if and $issuer.tls.keyPEM (not $issuer.tls.crtPEM) }}
{{- $problems = append $problems "identity.issuer.tls: there is a key but no certificate.\n  why:  the issuer is both\n  next: give identity.issuer.tls.crtPEM too, or neither to have both made" }}
{{- end }}
{{- if and $issuer.tls.crtPEM (not $v.identityTrustAnchorsPEM) (not $v.identity.externalCA) }}
{{- $problems = append $problems "identity.issuer.tls is given but identityTrustAnchorsPEM is not.\n  why:  proxies trust anchors; which one signed the issuer cannot be guessed\n  next: --set-file identityTrustAnchorsPEM=ca.crt" }}
{{- end }}
{{- if and $v.identityTrustAnchorsPEM (not $issuer.tls.crtPEM) (eq (include "weft.identity.scheme" .) "linkerd.io/tls") (not (lookup "v1" "Secret" .Release.Namespace "linkerd-identity-issuer")) }}
{{- $problems = append $problems "identityTrustAnchorsPEM is given but no issuer.\n  why:  an issuer made here would not be signed by those anchors\n  next: give identity.issuer.tls.crtPEM and keyPEM, or set identity.issuer.scheme=kubernetes.io/tls and make Secret linkerd-identity-issuer yourself" }}
{{- end }}
{{- if and (eq (include "weft.identity.scheme" .) "kubernetes.io/tls") (not $v.identityTrustAnchorsPEM) (not $v.identity.externalCA) }}
{{- $problems = append $problems "identity.issuer.scheme is kubernetes.io/tls but there are no trust anchors.\n  why:  the issuer's Secret is not ours, and ConfigMap linkerd-identity-trust-roots would be empty\n  next: --set-file identityTrustAnchorsPEM=ca.crt, or set identity.externalCA=true and write that ConfigMap yourself (trust-manager can)" }}
{{- end }}
{{- if and $issuer.certManager.enabled (not $issuer.certManager.issuerRef.name) }}
{{- $problems = append $problems "identity.issuer.certManager.enabled without issuerRef.name.\n  why:  cert-manager must know who signs the issuer\n  next: set identity.issuer.certManager.issuerRef.name (and kind) to an Issuer that holds the trust anchor's key" }}
{{- end }}
{{- range $hook, $_ := include "weft.hooks" . | fromJson }}
{{- $i := index $v $hook }}
{{- if and $i.externalSecret (not (or $i.caBundle $i.injectCaFrom $i.injectCaFromSecret)) }}
{{- $problems = append $problems (printf "%s.externalSecret without a CA.\n  why:  the API server must be told whom to trust when it calls the webhook\n  next: set %s.caBundle, or injectCaFrom / injectCaFromSecret if cert-manager is to fill it in" $hook $hook) }}
{{- end }}
{{- if ne (empty $i.crtPEM) (empty $i.keyPEM) }}
{{- $problems = append $problems (printf "%s.crtPEM and keyPEM: only one is given.\n  why:  the webhook serves with both\n  next: give both, or neither to have them made" $hook) }}
{{- end }}
{{- if and $i.certManager.enabled (or $i.externalSecret $i.crtPEM) }}
{{- $problems = append $problems (printf "%s: certManager.enabled together with externalSecret or crtPEM.\n  why:  the Secret would have two owners\n  next: keep one of them" $hook) }}
{{- end }}
{{- end }}
{{- if ne (empty $v.bus.tls.caPEM) (empty $v.bus.tls.caKeyPEM) }}
{{- $problems = append $problems "bus.tls.caPEM and caKeyPEM: only one is given.\n  why:  the bus's certificates are signed with them\n  next: give both, or set bus.tls.source=secrets and make the Secrets yourself" }}
{{- end }}
{{- if and (not $v.nats.enabled) (not $v.nats.url) }}
{{- $problems = append $problems "nats.enabled is false and nats.url is empty.\n  why:  without a bus nothing but identity works\n  next: set nats.url=tls://host:4222, or leave nats.enabled true" }}
{{- end }}
{{- if and $v.nats.enabled $v.nats.url }}
{{- $problems = append $problems "nats.url is set while nats.enabled is true.\n  why:  there is one bus\n  next: set nats.enabled=false to use the one at nats.url" }}
{{- end }}
{{- if and (not $v.nats.enabled) (eq $v.bus.tls.source "generated") }}
{{- $problems = append $problems "bus.tls.source is generated but the NATS servers are not ours.\n  why:  they would not know an authority that is made here\n  next: set bus.tls.source=secrets (Secrets weft-bus-watcher, weft-bus-destination, … with tls.crt, tls.key, ca.crt), or certManager" }}
{{- end }}
{{- if and (eq $v.bus.auth "credentials") $v.nats.enabled }}
{{- $problems = append $problems "bus.auth is credentials but nats.enabled is true.\n  why:  the servers of this chart know clients by their certificates\n  next: leave bus.auth at mtls, or use NATS servers of your own (nats.enabled=false, nats.url)" }}
{{- end }}
{{- if and $v.bus.history.enabled $v.nats.enabled (not $v.bus.history.domain) }}
{{- $problems = append $problems "bus.history.domain is empty but nats.enabled is true.\n  why:  the history is kept by a server of its own, which is asked by its domain\n  next: leave bus.history.domain at history; empty is for NATS servers of your own that have JetStream themselves" }}
{{- end }}
{{- if has (int $v.nats.replicas) (list 2) }}
{{- if $v.highAvailability }}
{{- $problems = append $problems "highAvailability with nats.replicas=2.\n  why:  while one server is replaced the other one is alone\n  next: set nats.replicas=3" }}
{{- end }}
{{- end }}
{{- if $v.highAvailability }}
{{- $counts := dict "controllerReplicas" (int $v.controllerReplicas) "watcher.replicas" (int $v.watcher.replicas) }}
{{- range $name := list "destinationController" "policyController" "identity" "proxyInjector" }}
{{- $of := index $v $name }}
{{- if (($of.autoscaling).enabled) }}
{{- $_ := set $counts (printf "%s.autoscaling.minReplicas" $name) (int $of.autoscaling.minReplicas) }}
{{- else if $of.replicas }}
{{- $_ := set $counts (printf "%s.replicas" $name) (int $of.replicas) }}
{{- end }}
{{- end }}
{{- range $name, $n := $counts }}
{{- if lt $n 2 }}
{{- $problems = append $problems (printf "highAvailability with %s=%d.\n  why:  one pod cannot be replaced without an interruption\n  next: set it to 3, or use values-ha.yaml" $name $n) }}
{{- end }}
{{- end }}
{{- if and $v.nats.enabled (lt (int $v.nats.replicas) 2) }}
{{- $problems = append $problems "highAvailability with one NATS server.\n  why:  while it is replaced no change reaches the proxies\n  next: set nats.replicas=3" }}
{{- end }}
{{- end }}
{{- if and $v.enablePodDisruptionBudget (not $v.podDisruptionBudget.maxUnavailable) }}
{{- $problems = append $problems "podDisruptionBudget.maxUnavailable is 0.\n  why:  no node with a control-plane pod could ever be drained\n  next: set it to 1" }}
{{- end }}
{{- range $name, $of := dict "destinationController" $v.destinationController "policyController" $v.policyController }}
{{- if and $of.autoscaling.enabled (gt (int $of.autoscaling.minReplicas) (int $of.autoscaling.maxReplicas)) }}
{{- $problems = append $problems (printf "%s.autoscaling: minReplicas %d is above maxReplicas %d.\n  why:  Kubernetes refuses such an autoscaler\n  next: raise maxReplicas" $name (int $of.autoscaling.minReplicas) (int $of.autoscaling.maxReplicas)) }}
{{- end }}
{{- end }}
{{- if and (gt (int $v.proxyInit.closeWaitTimeoutSecs) 0) (not $v.proxyInit.runAsRoot) (not $v.cniEnabled) }}
{{- $problems = append $problems "proxyInit.closeWaitTimeoutSecs needs proxyInit.runAsRoot=true.\n  why:  it writes a kernel setting\n  next: set proxyInit.runAsRoot=true, or leave the timeout at 0" }}
{{- end }}
{{- if $problems }}
{{- fail (printf "\n\n%s\n" (join "\n\n" $problems)) }}
{{- end }}
{{- end }}
