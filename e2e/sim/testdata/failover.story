# The lease moves while the old leader goes on for two seconds, deaf to the API.
> add
destination-0.1 web-0: +10.1.0.0:8080
destination-1.1 web-0: +10.1.0.0:8080
policy-0.1 pod-0: detect, nobody
policy-1.1 pod-0: detect, nobody
> add
destination-0.1 web-1: +10.1.0.1:8080
destination-1.1 web-1: +10.1.0.1:8080
policy-0.1 pod-1: detect, nobody
policy-1.1 pod-1: detect, nobody
> stall 0
> lead 1 2s
> add
destination-0.1 web-2: +10.1.0.2:8080
destination-1.1 web-2: +10.1.0.2:8080
policy-0.1 pod-2: detect, nobody
policy-1.1 pod-2: detect, nobody
> remove 0
destination-0.1 web-0: -10.1.0.0:8080
destination-1.1 web-0: -10.1.0.0:8080
> pass 0 3s
> resume 0
> add
destination-0.1 web-0: +10.1.0.3:8080
destination-1.1 web-0: +10.1.0.3:8080
policy-0.1 pod-3: detect, nobody
policy-1.1 pod-3: detect, nobody
