package main

import (
	"go/scanner"
	"go/token"
	"regexp"
	"slices"
	"strings"
)

// found is a pattern on the lines from line to last of a file.
type found struct {
	pattern    pattern
	line, last int
	text       string
}

// block is text that is read in one piece: a paragraph, an item, a table's cell.
type block struct {
	text   string
	starts []int // the offset of each of its lines
	lines  []int // the numbers of its lines
}

// add appends a line.
func (b *block) add(number int, line string) {
	if b.text != "" {
		b.text += " "
	}
	b.starts, b.lines = append(b.starts, len(b.text)), append(b.lines, number)
	b.text += strings.TrimSpace(line)
}

// lineOf is the number of the line that has the offset.
func (b *block) lineOf(offset int) int {
	i, is := slices.BinarySearch(b.starts, offset)
	if !is {
		i--
	}
	return b.lines[i]
}

// find returns what is in a file, in order.
func find(name string, text []byte) (all []found) {
	blocks := markdown
	if strings.HasSuffix(name, ".go") {
		blocks = comments
	}
	for _, b := range blocks(text) {
		if b.text == "" {
			continue
		}
		prose := mask(b.text)
		for _, p := range patterns {
			for _, at := range p.match.FindAllStringIndex(prose, -1) {
				for at[0] < at[1] && strings.ContainsRune(" .!?;", rune(prose[at[0]])) {
					at[0]++ // what ended the sentence before
				}
				if p.except != nil && p.except.MatchString(prose[at[0]:]) {
					continue
				}
				all = append(all, found{p, b.lineOf(at[0]), b.lineOf(at[1] - 1), b.text[at[0]:at[1]]})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b found) int { return a.line - b.line })
	return all
}

var (
	codeSpan = regexp.MustCompile("`[^`]*`")
	target   = regexp.MustCompile(`\]\([^)]*\)`)
)

// mask replaces code and addresses by as many bytes that no pattern matches.
func mask(text string) string {
	text = codeSpan.ReplaceAllStringFunc(text, func(s string) string { return strings.Repeat("x", len(s)) })
	return target.ReplaceAllStringFunc(text, func(s string) string { return strings.Repeat(" ", len(s)) })
}

var (
	heading = regexp.MustCompile(`^#+ `)
	item    = regexp.MustCompile(`^(?:[-*+]|\d+[.)]) +`)
	quote   = regexp.MustCompile(`^(?:> ?)+`)
)

// markdown returns the blocks of a page, without its headings and its code.
func markdown(text []byte) (all []*block) {
	b := &block{}
	end := func() { all, b = append(all, b), &block{} }
	fence, indented := "", true // whether four spaces would be code here
	for i, line := range strings.Split(string(text), "\n") {
		line = quote.ReplaceAllString(strings.TrimRight(line, "\r"), "")
		short := strings.TrimSpace(line)
		if mark := short[:len(short)-len(strings.TrimLeft(short, "`~"))]; len(mark) >= 3 {
			switch {
			case fence == "":
				fence = mark
			case strings.HasPrefix(mark, fence):
				fence = ""
			}
			end()
			continue
		}
		switch {
		case fence != "":
		case short == "":
			end()
			indented = true
		case indented && (strings.HasPrefix(line, "    ") || strings.HasPrefix(line, "\t")):
		case heading.MatchString(line), strings.HasPrefix(short, "<!--"):
			end()
			indented = true
		case strings.HasPrefix(short, "|"):
			indented = false
			for cell := range strings.SplitSeq(strings.Trim(short, "|"), " | ") {
				end()
				b.add(i+1, cell)
			}
			end()
		default:
			indented = false
			if m := item.FindString(short); m != "" {
				end()
				short = short[len(m):]
			}
			b.add(i+1, short)
		}
	}
	end()
	return all
}

// comments returns the comments of a Go file, without what is code in them. Comments of a line
// each, one below the other, are one.
func comments(text []byte) (all []*block) {
	files := token.NewFileSet()
	file := files.AddFile("", files.Base(), len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, scanner.ScanComments) // what does not parse is for others to tell
	b, last, column := &block{}, 0, 0
	end := func() { all, b = append(all, b), &block{} }
	for {
		pos, tok, said := s.Scan()
		if tok == token.EOF {
			end()
			return all
		}
		if tok != token.COMMENT {
			continue
		}
		at := file.Position(pos)
		if at.Line != last+1 || at.Column != column {
			end()
		}
		said = strings.TrimSuffix(strings.TrimPrefix(said, "/*"), "*/")
		number := at.Line
		for line := range strings.SplitSeq(said, "\n") {
			line, one := strings.CutPrefix(strings.TrimRight(line, "\r"), "//")
			line, spaced := strings.CutPrefix(line, " ")
			short := strings.TrimSpace(line)
			switch {
			case one && !spaced && short != "" && !strings.HasPrefix(line, "\t"): // a directive
			case strings.HasPrefix(line, "\t"), strings.HasPrefix(line, "    "): // code
				end()
			case short == "", heading.MatchString(short):
				end()
			default:
				if m := item.FindString(short); m != "" {
					end()
					short = short[len(m):]
				}
				b.add(number, short)
			}
			last, column = number, at.Column
			number++
		}
	}
}
