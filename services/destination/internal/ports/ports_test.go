package ports

import "testing"

func TestParse(t *testing.T) {
	tests := []struct{ in, want string }{
		{"", ""},
		{"25,587,3306,4444,5432,6379,9300,11211", "25,587,3306,4444,5432,6379,9300,11211"},
		{" 3306, 665 ", "665,3306"},
		{"8000-8010,8011,8005-8020", "8000-8020"},
		{"1-65535", "1-65535"},
		{"65535,65534", "65534-65535"},
	}
	for _, test := range tests {
		got, err := Parse(test.in)
		if err != nil {
			t.Errorf("Parse(%q): %v", test.in, err)
		}
		if got.String() != test.want {
			t.Errorf("Parse(%q) = %q, want %q", test.in, got, test.want)
		}
	}
	for _, bad := range []string{"0", "65536", "http", "9-8", "1-", "-1", "1-2-3", "+80"} {
		if got, err := Parse(bad); err == nil {
			t.Errorf("Parse(%q) = %q, want an error", bad, got)
		}
	}
}

func TestParseAnnotationKeepsWhatItCanRead(t *testing.T) {
	named := func(name string) []uint16 {
		if name == "mc" {
			return []uint16{11211, 11212}
		}
		return nil
	}
	tests := []struct{ in, want string }{
		{"", ""},
		{"mc", "11211-11212"},
		{"nobody,80,70000", "80"},
		{"9-8,mc", "11211-11212"},
	}
	for _, test := range tests {
		if got := ParseAnnotation(test.in, named); got.String() != test.want {
			t.Errorf("ParseAnnotation(%q) = %q, want %q", test.in, got, test.want)
		}
	}
	if got := ParseAnnotation("mc,1", nil); got.String() != "1" {
		t.Errorf("without names: %q, want 1", got)
	}
}

func TestHas(t *testing.T) {
	s := ParseAnnotation("1,10-20,65535", nil)
	for p, want := range map[uint16]bool{0: false, 1: true, 2: false, 9: false, 10: true, 15: true, 20: true, 21: false, 65535: true} {
		if got := s.Has(p); got != want {
			t.Errorf("Has(%d) = %v, want %v", p, got, want)
		}
	}
	if (Set{}).Has(1) || !(Set{}).Empty() {
		t.Error("the zero set is not empty")
	}
}

// FuzzParseAnnotation: no input panics, and what is written reads back the same.
func FuzzParseAnnotation(f *testing.F) {
	for _, seed := range []string{"", "80", "1-3,http", "-", ",,,", "65535-65536", "00080", " 9 - 10 "} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, list string) {
		s := ParseAnnotation(list, func(string) []uint16 { return []uint16{0, 7} })
		again, err := Parse(s.String())
		if err != nil {
			t.Fatalf("Parse(%q): %v", s, err)
		}
		if again.String() != s.String() {
			t.Fatalf("Parse(%q) = %q", s, again)
		}
		if s.Has(0) {
			t.Fatalf("%q has port 0", list)
		}
	})
}
