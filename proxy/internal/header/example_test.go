package header_test

import (
	"bytes"
	"fmt"

	"github.com/weftmesh/weft/proxy/internal/header"
)

func Example() {
	var conn bytes.Buffer
	_ = header.Write(&conn, header.Header{Port: 8080, Session: header.HTTP2})
	conn.WriteString("PRI * HTTP/2.0")

	h, err := header.Read(&conn)
	fmt.Println(h.Port, h.Session, err)
	fmt.Println(conn.String())
	// Output:
	// 8080 http/2 <nil>
	// PRI * HTTP/2.0
}
