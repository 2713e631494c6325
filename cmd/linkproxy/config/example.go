package config

// Example is a complete config with every key, for help and documentation.
const Example = `# linkproxy's configuration. Only what differs from the defaults needs to be here.

default = "direct"                  # what no peer covers: "direct" dials it from this machine, "refuse" does not

[listen]                            # linkproxy up: the endpoints for apps that know proxies
socks = "127.0.0.1:1080"            # SOCKS5; the same address as http: both on one port; "off" for none
http  = "127.0.0.1:8118"            # HTTP proxy; "localhost:8118" listens on both loopback addresses,
                                    # "unix:/run/user/1000/linkproxy.sock" on a Unix socket
wait  = "60s"                       # how long an app waits while no route works; "0s" not at all
# users = { alice = "a password" }  # apps must log in
# password_file = "passwords"       # the same in a file of its own, name:password on each line
# allow_remote = true               # let other machines use these endpoints without a password

[[forward]]                         # a fixed local port, for apps that only know "host and port"
listen = "127.0.0.1:5432"
to     = "devbox:5432"              # port 5432 of devbox itself
hold   = "1h"                       # how long its streams survive without any route (default 24h)
refuse_http = true                  # close what starts like a web page's request

[[forward]]
listen = "127.0.0.1:3000-3010"      # a range, as long on both sides
to     = "devbox/db.internal:3000-3010"  # a machine that devbox can reach

[host]                              # linkproxy host: what this machine lets its clients reach
listen = ":8639"
allow  = ["127.0.0.1:*", "10.20.0.0/16:443", { to = "127.0.0.1:5432", hold = "1h" }]

[[peer]]                            # a machine to reach; written by linkproxy pair
name    = "devbox"                  # for apps: devbox or devbox.linkproxy.internal
id      = "ecr0-gwfm-9gb8-wz4m-kqhc-em76-1gp9-qe7z-ac01-fhd2-cwhm-x75m-ve76-0bt1"
routes  = ["lan:192.168.1.20", "tailnet:devbox.tail1234.ts.net", "direct:devbox.example.com:7000"]
standby = "auto"                    # keep a second connection ready: "auto" while bytes move, "always", "never"
reach   = ["10.20.0.0/16", "*.corp.example.com"]  # what devbox dials for us, besides itself

[[peer]]                            # a machine that cannot run linkproxy: nas:PORT takes the best route at that moment, and an
name    = "nas"                     # open connection ends with its route
agent   = false                     # so no id, and no ports: each connection brings its own
routes  = ["lan:192.168.1.9", "tailnet:nas.tail1234.ts.net"]
reach   = ["nas.example.com"]       # other names of nas itself
`
