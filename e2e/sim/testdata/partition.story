# A replica that is cut off (the third process: destination-0) keeps what it has, and is told what it missed in one message.
> add
destination-0.1 web-0: +10.1.0.0:8080
destination-1.1 web-0: +10.1.0.0:8080
policy-0.1 pod-0: detect, nobody
policy-1.1 pod-0: detect, nobody
> cut 2
> add
destination-1.1 web-1: +10.1.0.1:8080
policy-0.1 pod-1: detect, nobody
policy-1.1 pod-1: detect, nobody
> add
destination-1.1 web-2: +10.1.0.2:8080
policy-0.1 pod-2: detect, nobody
policy-1.1 pod-2: detect, nobody
> add
destination-1.1 web-0: +10.1.0.3:8080
policy-0.1 pod-3: detect, nobody
policy-1.1 pod-3: detect, nobody
> remove 0
destination-1.1 web-0: -10.1.0.0:8080
> heal 2
destination-0.1 web-0: +10.1.0.3:8080
destination-0.1 web-0: -10.1.0.0:8080
destination-0.1 web-1: +10.1.0.1:8080
destination-0.1 web-2: +10.1.0.2:8080
