package configs

import "strings"

// distance is the Levenshtein distance between two texts, in bytes, ignoring case.
func distance(a, b string) int {
	a, b = strings.ToLower(a), strings.ToLower(b)
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			above := row[j+1]
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(above+1, row[j]+1, diagonal+cost)
			diagonal = above
		}
	}
	return row[len(b)]
}

// nearest picks the candidate with the least distance, the first of equals; "" when there are
// none.
func nearest(text string, candidates []string) string {
	best, least := "", 0
	for _, c := range candidates {
		if d := distance(text, c); best == "" || d < least {
			best, least = c, d
		}
	}
	return best
}

// nearestKey names the known key that an unknown one most likely meant: a sibling that differs
// by little, else a key of the same name elsewhere, else a sibling that differs by half, else
// whatever is nearest as a whole.
func nearestKey(schema, parent *node, parentKey, name string) string {
	var siblings []string
	for _, k := range parent.keys {
		siblings = append(siblings, k.name)
	}
	sibling := nearest(name, siblings)
	far := distance(name, sibling)
	if sibling != "" && far <= (len(name)+2)/3 {
		return join(parentKey, sibling)
	}
	var all, namesakes []string
	schema.walk("", func(key string, n *node) {
		all = append(all, key)
		if n.name == name {
			namesakes = append(namesakes, key)
		}
	})
	full := join(parentKey, name)
	switch {
	case len(namesakes) > 0:
		return nearest(full, namesakes)
	case sibling != "" && far <= len(name)/2+1:
		return join(parentKey, sibling)
	}
	return nearest(full, all)
}
