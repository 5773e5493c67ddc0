# A new replica is told everything by its peers although the writer is cut off; the writer's return changes nothing.
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
> add
destination-0.1 web-2: +10.1.0.2:8080
destination-1.1 web-2: +10.1.0.2:8080
policy-0.1 pod-2: detect, nobody
policy-1.1 pod-2: detect, nobody
> cut 0
> restart-destination 0
destination-0.2 web-0: +10.1.0.0:8080
destination-0.2 web-1: +10.1.0.1:8080
destination-0.2 web-2: +10.1.0.2:8080
> restart-policy 1
policy-1.2 pod-0: detect, nobody
policy-1.2 pod-1: detect, nobody
policy-1.2 pod-2: detect, nobody
> heal 0
> remove 1
destination-0.2 web-1: -10.1.0.1:8080
destination-1.1 web-1: -10.1.0.1:8080
