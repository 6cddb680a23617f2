package main

import "regexp"

// pattern is a turn of phrase. What matches is a find unless except matches the text that begins
// with it.
type pattern struct {
	name, instead string
	match, except *regexp.Regexp
	often         bool // it is often right: it is counted, and fails nothing
}

func re(s string) *regexp.Regexp { return regexp.MustCompile(s) }

// What comes after a "where" that means "if": somebody does, or is, or has something. And what
// comes before one that is about a place.
const (
	subject = `(?:it|they|he|this|that|these|those|who|(?:the|a|an|its|their|your|another|no|any|some|each|every|both|all|one|two|many|too many|such) [\w.-]+(?: [\w.-]+)?|[\w.]+)`
	does    = `(?:is|are|was|were|has|have|had|does|do|did|can|cannot|could|may|might|must|will|would|should|says?|said|fails?|failed|ends?|ended|hangs?|succeeds?|needs?|lets?|allows?|knows?|sends?|wants?|gives?|takes?|stamps?|pushes|supports?|comes|goes|runs|leads|differs?|matters)`
	place   = `is|are|was|were|be|says?|saying|said|tells?|told|of|from|about|to|for|on|by|and|or|as|look|looks|know|knows|place|places|spots?|shows?|remembers?|decides?|names?|directory|file|address|table|row|column|page|machine|zone|terminal|line|point|test|tests|position|offset|stack|section|heading|matter|exactly|just|right|ask|asks|asking|choose|find|finds|finding|put|puts|see|sees|learn|learns|stay|stays|start|lives|wherever|reports?|returns?|records?|market|also|even|only|except|unless`
)

var patterns = []pattern{
	{
		"where for if", `"if" or "when"`,
		re(`(?:^|[^\s]+ )where (?:there (?:is|are|was|were)|(?:no|none|nobody|nothing|neither|everybody|somebody|anybody) ` + `\w+|` + subject + ` ` + does + `)\b`),
		re(`(?i)^(?:(?:` + place + `|\S+[.!?:]) where|(?:\S+ )?where (?:it|they|this|that|the \w+|\w+) (?:is|are|was|were)(?: not)?[.,;:)])`), false,
	},
	{"also where", `"even if"`, re(`(?i)\b(?:also|even|only|except|unless|save) (?:where)\b`), nil, false},
	{"also if", `"even if"`, re(`(?i)\balso (?:if|when|while)\b`), nil, false},
	{"Where it is so", `"If it is so"`, re(`(?:^|[.!?] )Where [^.?!]*, [^.?!]*[^.?! ]`), re(`^[^?]*\?`), false},
	{"who does", `"a candidate that does"`, re(`(?:^|[.!;] )Who [a-z]+\b`), re(`^[^.!]*\?`), false},
	{"what does", `the noun: "a request that was sent before"`, re(`(?:^|[.!;] )What(?: [^\s.!?]+){8,}`), re(`^[^.!]*\?`), true},
	{"whoever", `the noun: "the process that"`, re(`(?i)\bwh(?:o|om|at|ich)(?:so)?ever\b`), re(`(?i)^(?:whatever|whichever)`), false},
	{"for who", `the noun: "for a process that"`, re(`(?i)\b(?:for|from|by|with|of|than|to|if|as) who (?:is|are|was|has|had|does|did|can|cannot|may|must|will|would|comes|wants|needs|leads|reads|writes|stands|asks)\b`), nil, false},
	{"one who", `the noun: "a candidate that"`, re(`(?i)\b(?:the|for|by|of|to|from|with|as|than|and|or|is) one (?:who|whom|that is to)\b`), nil, false},
	{"bear", `"tolerate" or "survive"`, re(`(?i)\b(?:bear|bears|bore|borne)\b`), re(`(?i)^(?:bears?|bore|borne) (?:in mind|token)`), false},
	{"befall", `"hit" or "happen to"`, re(`(?i)\b(?:befalls?|befell|befallen)\b`), nil, false},
	{"heed", `"respect" or "obey"`, re(`(?i)\bheed(?:s|ed|ing)?\b`), nil, false},
	{"mend", `"fix" or "repair"`, re(`(?i)\bmend(?:s|ed|ing)?\b`), nil, false},
	{"beside", `"next to", "alongside" or "apart from"`, re(`(?i)\bbeside\b`), re(`(?i)^beside the point`), false},
	{"anew", `"again"`, re(`(?i)\b(?:anew|afresh)\b`), nil, false},
	{"whereby", `"by which", or a sentence of its own`, re(`(?i)\b(?:whereby|wherein|whence|whereof|thereof|therein|thence|lest)\b`), nil, false},
	{"that one", "the noun again", re(`(?i)\bthat one(?:'s\b|[.,;:)]|$| (?:is|was|has|had|does|did|may|must|cannot|which|alone|and|or|but|too)\b)`), nil, false},
	{"one's own", `"its own", or the noun`, re(`(?i)\b(?:one|somebody|nobody|everybody)'s own\b|(?:^|\w+ )one's\b|\boneself\b`), re(`(?i)^(?:old|older|new|newer|other|first|second|last|next|latter|former|each|every|any|no) one's\b`), false},
	{"is told", "who tells or asks whom", re(`(?i)\b(?:is|are|was|were|be|been|being) (?:told|asked)\b`), re(`(?i)^\w+ \w+ (?:\w+ )?(?:\w+ )?by\b`), true},
	{"nothing but", `"only"`, re(`(?i)\b(?:nothing but|nobody but|none but)\b`), nil, false},
	{"is no", `what it is, or "is not a"`, re(`(?i)\b\w+ (?:is|are|was|were) no [a-z]+\b`), re(`(?i)^(?:(?:there|here) |\w+ \w+ no (?:longer|more|less|fewer|worse|better|greater|earlier|later|such|other|one|need|different|sooner|older|newer|smaller|larger|faster|slower)\b)`), false},
	{"at the least", `"at least" or "at most"`, re(`(?i)\bat the (?:least|most)\b`), re(`(?i)^at the most [a-z]`), false},
	{"that did", "what did it, next to the verb", re(`(?i)\b[a-z]+ that (?:did|does|do)[.,;:)]`), nil, true},
	{"what it was", "what it is", re(`(?i)\btried and not (?:taken|kept)\b|\bas it was before\b|\bused to be\b`), nil, false},
}
