# A Server denies from the moment that its pod is known; then one client is let in.
> add
destination-0.1 web-0: +10.1.0.0:8080
destination-1.1 web-0: +10.1.0.0:8080
policy-0.1 pod-0: detect, nobody
policy-1.1 pod-0: detect, nobody
> allow 0
policy-0.1 pod-0: detect, client.shop
policy-1.1 pod-0: detect, client.shop
> protocol 0
policy-0.1 pod-0: http2, client.shop
policy-1.1 pod-0: http2, client.shop
> protocol 0
destination-0.1 web-0: +10.1.0.0:8080
destination-1.1 web-0: +10.1.0.0:8080
policy-0.1 pod-0: opaque, client.shop
policy-1.1 pod-0: opaque, client.shop
> allow 0
policy-0.1 pod-0: opaque, nobody
policy-1.1 pod-0: opaque, nobody
