package outbound

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/weftmesh/weft/proxy/internal/message"
)

// answerBody is an answer's body of some pieces; from some on, they have not come yet.
type answerBody struct {
	pieces  []string
	here    int // how many have come; the end counts as one
	at      int
	err     error // in place of the end
	trailer message.Fields
	lent    []byte
}

func (b *answerBody) Next() ([]byte, error) {
	for i := range b.lent { // a piece is the body's again
		b.lent[i] = '!'
	}
	b.at++
	if b.at > len(b.pieces) {
		if b.err != nil {
			return nil, b.err
		}
		return nil, io.EOF
	}
	b.lent = []byte(b.pieces[b.at-1])
	return b.lent, nil
}
func (b *answerBody) Ready() bool { return b.at < b.here }
func (b *answerBody) Trailer() message.Fields {
	if b.at <= len(b.pieces) {
		return nil
	}
	return b.trailer
}
func (b *answerBody) Abort(error) {}

// What is looked at is not lost, and nothing is waited for that may never come.
func TestPeek(t *testing.T) {
	broken := errors.New("broken")
	trailer := message.Fields{{Name: "grpc-status", Value: "14"}}
	for _, tt := range []struct {
		name string
		head message.Fields
		body answerBody
		wait bool
		want string
		all  string
		err  error
	}{
		{"in the head", message.Fields{{Name: "grpc-status", Value: "13"}}, answerBody{here: 1}, true, "13", "", io.EOF},
		{"trailers alone", nil, answerBody{here: 1, trailer: trailer}, true, "14", "", io.EOF},
		{"trailers that come later", nil, answerBody{trailer: trailer}, true, "14", "", io.EOF},
		{"behind one piece", nil, answerBody{pieces: []string{"ab"}, here: 2, trailer: trailer}, true, "14", "ab", io.EOF},
		{"behind one piece, later", nil, answerBody{pieces: []string{"ab"}, here: 1, trailer: trailer}, true, "", "ab", io.EOF},
		{"behind two", nil, answerBody{pieces: []string{"ab", "cd"}, here: 3, trailer: trailer}, true, "", "abcd", io.EOF},
		{"behind three, some later", nil, answerBody{pieces: []string{"a", "b", "c"}, here: 2, trailer: trailer}, true, "", "abc", io.EOF},
		{"a body that breaks", nil, answerBody{here: 1, err: broken}, true, "", "", broken},
		{"behind a piece", nil, answerBody{pieces: []string{"ab"}, here: 2, err: broken}, true, "", "ab", broken},
		{"not gRPC: the head only", nil, answerBody{pieces: []string{"ab"}, here: 2, trailer: trailer}, false, "", "ab", io.EOF},
	} {
		t.Run(tt.name, func(t *testing.T) {
			body := tt.body
			x := &try{res: &message.Response{Fields: tt.head}, body: &body}
			if got := x.peek(tt.wait); got != tt.want {
				t.Errorf("peek() = %q, want %q", got, tt.want)
			}
			var all bytes.Buffer
			for {
				p, err := x.body.Next()
				if err != nil {
					if !errors.Is(err, tt.err) {
						t.Errorf("the end is %v, want %v", err, tt.err)
					}
					break
				}
				all.Write(p)
			}
			if all.String() != tt.all {
				t.Errorf("the client gets %q, want %q", all.String(), tt.all)
			}
		})
	}
}
