package sqldiff

// form is an operator or function: what it takes and gives, and its text for
// each engine. A parameter in small takes a small constant, drawn from a range.
type form struct {
	result Type
	params []Type
	skein  string
	duck   string // "" is the same
	small  [2]int // range of the last parameter, which is then a constant; {0, 0} is any expression
}

// zeroFails spells PostgreSQL's error of a division by zero in DuckDB, where
// it gives NULL.
func zeroFails(op string) string {
	return "CASE WHEN $2 = 0 THEN error('division by zero') ELSE $1 " + op + " $2 END"
}

var numberForms = func() []form {
	var fs []form
	for _, t := range []Type{Small, Int, Big} {
		two := []Type{t, t}
		fs = append(fs,
			form{result: t, params: two, skein: "($1 + $2)"}, form{result: t, params: two, skein: "($1 - $2)"},
			form{result: t, params: two, skein: "($1 * $2)"},
			form{result: t, params: two, skein: "($1 / nullif($2, 0))", duck: "($1 // nullif($2, 0))"},
			form{result: t, params: two, skein: "($1 % nullif($2, 0))"},
			form{result: t, params: two, skein: "($1 % $2)", duck: zeroFails("%")},
			form{result: t, params: []Type{t}, skein: "(- $1)"},
			form{result: t, params: []Type{t}, skein: "abs($1)"},
			form{result: t, params: two, skein: "($1 & $2)"},
			form{result: t, params: two, skein: "($1 | $2)"},
			form{result: t, params: two, skein: "($1 # $2)", duck: "xor($1, $2)"},
			form{result: t, params: []Type{t}, skein: "(~ $1)"},
			form{result: t, params: []Type{Double}, skein: "CAST($1 AS " + t.String() + ")"},
			form{result: t, params: []Type{Dec}, skein: "CAST($1 AS " + t.String() + ")"},
			form{result: t, params: []Type{Big}, skein: "CAST(CAST($1 AS TEXT) AS " + t.String() + ")"},
		)
	}
	fs = append(fs,
		form{result: Int, params: []Type{Small}, skein: "CAST($1 AS INTEGER)"},
		form{result: Big, params: []Type{Int}, skein: "CAST($1 AS BIGINT)"},
		form{result: Small, params: []Type{Int}, skein: "CAST($1 AS SMALLINT)"},
		form{result: Int, params: []Type{Bool}, skein: "CAST($1 AS INTEGER)"},
		form{result: Int, params: []Type{Small, Int}, skein: "($1 + $2)"},
		form{result: Big, params: []Type{Int, Big}, skein: "($1 * $2)"},
		form{result: Int, params: []Type{Int}, skein: "(+ $1)"},
		form{result: Int, params: []Type{Text}, skein: "length($1)", duck: "CAST(length($1) AS INTEGER)"},
		form{result: Int, params: []Type{Text}, skein: "ascii($1)"},
		form{result: Int, params: []Type{Text}, skein: "bit_length($1)", duck: "CAST(octet_length(encode($1)) * 8 AS INTEGER)"},
		form{result: Int, params: []Type{Int, Int}, skein: "gcd($1 % 1000, $2)", duck: "CAST(gcd($1 % 1000, $2) AS INTEGER)", small: [2]int{-12, 12}},
		form{result: Big, params: []Type{Int, Int}, skein: "lcm(CAST($1 AS BIGINT), $2)", duck: "CAST(lcm(CAST($1 AS BIGINT), $2) AS BIGINT)", small: [2]int{-12, 12}},
		form{result: Int, params: []Type{Text}, skein: "octet_length($1)", duck: "CAST(octet_length(encode($1)) AS INTEGER)"},
		form{result: Int, params: []Type{Bytes}, skein: "octet_length($1)", duck: "CAST(octet_length($1) AS INTEGER)"},
		form{result: Int, params: []Type{Text, Text}, skein: "strpos($1, $2)", duck: "CAST(strpos($1, $2) AS INTEGER)"},
		form{result: Int, params: []Type{Text, Text}, skein: "position($1 IN $2)", duck: "CAST(strpos($2, $1) AS INTEGER)"},
		form{result: Int, params: []Type{Date, Date}, skein: "($1 - $2)", duck: "CAST($1 - $2 AS INTEGER)"},

		form{result: Double, params: []Type{Double, Double}, skein: "($1 + $2)"},
		form{result: Double, params: []Type{Double, Double}, skein: "($1 - $2)"},
		form{result: Double, params: []Type{Double}, skein: "(- $1)"},
		form{result: Double, params: []Type{Double}, skein: "abs($1)"},
		form{result: Double, params: []Type{Double}, skein: "ceil($1)"},
		form{result: Double, params: []Type{Double}, skein: "floor($1)"},
		form{result: Double, params: []Type{Double}, skein: "trunc($1)"},
		form{result: Double, params: []Type{Double}, skein: "round($1)", duck: "round_even($1, 0)"},
		form{result: Double, params: []Type{Double}, skein: "sign($1)", duck: "(CASE WHEN isnan($1) THEN $1 ELSE CAST(sign($1) AS FLOAT8) END)"},
		form{result: Double, params: []Type{Int}, skein: "CAST($1 AS FLOAT8)"},
		form{result: Double, params: []Type{Double, Int}, skein: "($1 * $2)", small: [2]int{-4, 4}},

		form{result: Dec, params: []Type{Dec, Dec}, skein: "CAST($1 + $2 AS DECIMAL(18,4))"},
		form{result: Dec, params: []Type{Dec, Dec}, skein: "CAST($1 - $2 AS DECIMAL(18,4))"},
		form{result: Dec, params: []Type{Dec, Dec}, skein: "CAST(CAST($1 AS DECIMAL(14,4)) * CAST($2 AS DECIMAL(14,4)) AS DECIMAL(18,4))",
			duck: "CAST(CAST(CAST($1 AS DECIMAL(14,4)) AS DECIMAL(19,4)) * CAST($2 AS DECIMAL(14,4)) AS DECIMAL(18,4))"},
		form{result: Dec, params: []Type{Dec}, skein: "(- $1)"},
		form{result: Dec, params: []Type{Dec}, skein: "abs($1)"},
		form{result: Dec, params: []Type{Dec}, skein: "CAST(ceil($1) AS DECIMAL(18,4))"},
		form{result: Dec, params: []Type{Dec}, skein: "CAST(floor($1) AS DECIMAL(18,4))"},
		form{result: Dec, params: []Type{Dec}, skein: "CAST(round($1) AS DECIMAL(18,4))"},
		form{result: Dec, params: []Type{Dec}, skein: "CAST(trunc($1) AS DECIMAL(18,4))"},
		form{result: Dec, params: []Type{Dec}, skein: "CAST($1 AS DECIMAL(20,1))"},
		form{result: Dec, params: []Type{Dec, Int}, skein: "round($1, $2)", small: [2]int{0, 5}},
		form{result: Dec, params: []Type{Int}, skein: "CAST($1 AS DECIMAL(18,4))"},
		form{result: Dec, params: []Type{Double}, skein: "CAST($1 AS DECIMAL(18,4))"},
		form{result: Dec, params: []Type{Dec, Int}, skein: "CAST($1 + $2 AS DECIMAL(18,4))"},
		form{result: Dec, params: []Type{Dec, Dec}, skein: "CAST(CAST($1 AS DECIMAL(14,4)) % nullif(CAST($2 AS DECIMAL(14,4)), 0) AS DECIMAL(18,4))"},

		form{result: Approx, params: []Type{Double}, skein: "cbrt($1)"},
		form{result: Approx, params: []Type{Int}, skein: "sin($1)"},
		form{result: Approx, params: []Type{Int}, skein: "atan($1)"},
		form{result: Approx, params: []Type{Int, Int}, skein: "atan2($1, $2)"},
		form{result: Approx, params: []Type{Double}, skein: "degrees($1)"},
		form{result: Approx, params: []Type{Double}, skein: "radians($1)"},
		form{result: Approx, params: []Type{Double}, skein: "sqrt(abs($1))"},
		form{result: Approx, params: []Type{Double}, skein: "ln(abs($1) + 1)"},
		form{result: Approx, params: []Type{Double}, skein: "log(abs($1) + 1)"},
		form{result: Approx, params: []Type{Int}, skein: "exp($1 % 20)"},
		form{result: Approx, params: []Type{Double, Int}, skein: "power(abs($1), $2)", small: [2]int{0, 4}},
		form{result: Approx, params: []Type{Double, Double}, skein: "($1 / nullif($2, 0))"},
		form{result: Approx, params: []Type{Dec, Int}, skein: "CAST($1 / $2 AS FLOAT8)", duck: "(CAST($1 AS FLOAT8) / $2)", small: [2]int{1, 99}},
		form{result: Approx, params: []Type{Dec}, skein: "CAST($1 AS FLOAT8)"},
		form{result: Approx, params: []Type{Stamp}, skein: "CAST(extract(epoch FROM $1) AS FLOAT8)"},
		form{result: Approx, params: []Type{Clock}, skein: "CAST(extract(second FROM $1) AS FLOAT8)", duck: "(extract(microsecond FROM $1) / 1e6)"},
		form{result: Approx, params: []Type{Stamp}, skein: "date_part('second', $1)", duck: "(extract(microsecond FROM $1) / 1e6)"},
	)
	for _, field := range []string{"year", "quarter", "month", "day", "dow", "isodow", "doy", "week", "isoyear", "decade", "century"} {
		fs = append(fs, form{result: Big, params: []Type{Date}, skein: "extract(" + field + " FROM $1)"},
			form{result: Big, params: []Type{Stamp}, skein: "extract(" + field + " FROM $1)"})
	}
	for _, field := range []string{"hour", "minute", "microseconds"} {
		fs = append(fs, form{result: Big, params: []Type{Stamp}, skein: "extract(" + field + " FROM $1)"},
			form{result: Big, params: []Type{Clock}, skein: "extract(" + field + " FROM $1)"})
	}
	return fs
}()

var textForms = []form{
	{result: Text, params: []Type{Text, Text}, skein: "($1 || $2)"},
	{result: Text, params: []Type{Text, Int}, skein: "($1 || $2)"},
	{result: Text, params: []Type{Text, Big}, skein: "concat($1, '/', $2)"},
	{result: Text, params: []Type{Text, Int, Text}, skein: "concat_ws('-', $1, $2, $3)"},
	{result: Text, params: []Type{Int}, skein: "to_hex($1)", duck: "(CASE WHEN $1 < 0 THEN lower(to_hex(CAST($1 AS BIGINT) + 4294967296)) ELSE lower(to_hex($1)) END)"},
	{result: Text, params: []Type{Stamp}, skein: "to_char($1, 'MM/DD HH24:MI:SS')", duck: "strftime($1, '%m/%d %H:%M:%S')"},
	{result: Text, params: []Type{Text}, skein: "regexp_substr($1, '[a-e]+')", duck: "nullif(regexp_extract($1, '[a-e]+'), '')"},
	{result: Text, params: []Type{Text}, skein: "lower($1)"},
	{result: Text, params: []Type{Text}, skein: "upper($1)"},
	{result: Text, params: []Type{Text}, skein: "reverse($1)"},
	{result: Text, params: []Type{Text}, skein: "trim($1)"},
	{result: Text, params: []Type{Text}, skein: "ltrim($1)"},
	{result: Text, params: []Type{Text}, skein: "rtrim($1)"},
	{result: Text, params: []Type{Text}, skein: "trim(BOTH 'ag' FROM $1)"},
	{result: Text, params: []Type{Text, Text, Text}, skein: "replace($1, $2, $3)"},
	{result: Text, params: []Type{Text, Int}, skein: "substring($1 FROM $2)", small: [2]int{1, 5}},
	{result: Text, params: []Type{Text, Int}, skein: "substring($1 FROM 2 FOR $2)", small: [2]int{0, 5}},
	{result: Text, params: []Type{Text, Int}, skein: "substring($1 FROM 0 FOR $2)", duck: "substring($1, 1, greatest($2 - 1, 0))", small: [2]int{0, 5}},
	{result: Text, params: []Type{Text, Int}, skein: "left($1, $2)", small: [2]int{-3, 5}},
	{result: Text, params: []Type{Text, Int}, skein: "right($1, $2)", small: [2]int{-3, 5}},
	{result: Text, params: []Type{Text, Int}, skein: "lpad($1, $2)", duck: "lpad($1, $2, ' ')", small: [2]int{0, 9}},
	{result: Text, params: []Type{Text, Int}, skein: "rpad($1, $2, 'xy')", small: [2]int{0, 9}},
	{result: Text, params: []Type{Text, Int}, skein: "repeat($1, $2)", small: [2]int{-1, 3}},
	{result: Text, params: []Type{Bool}, skein: "CAST($1 AS TEXT)"},
	{result: Text, params: []Type{Big}, skein: "CAST($1 AS TEXT)"},
	{result: Text, params: []Type{Dec}, skein: "CAST(CAST($1 AS DECIMAL(18,4)) AS TEXT)"},
	{result: Text, params: []Type{Date}, skein: "CAST($1 AS TEXT)"},
	{result: Text, params: []Type{Stamp}, skein: "CAST($1 AS TEXT)"},
	{result: Text, params: []Type{Clock}, skein: "CAST($1 AS TEXT)"},
	{result: Text, params: []Type{UUID}, skein: "CAST($1 AS TEXT)"},
	{result: Text, params: []Type{Stamp, Stamp}, skein: "replace(CAST($1 - $2 AS TEXT), '-1 days', '-1 day')"},
	{result: Text, params: []Type{Text, Text, Int}, skein: "split_part($1, nullif($2, ''), $3)", small: [2]int{1, 3}},
	{result: Text, params: []Type{Text}, skein: "translate($1, 'abg', 'xy')"},
	{result: Text, params: []Type{Text}, skein: "md5($1)"},
	{result: Text, params: []Type{Int}, skein: "chr(abs($1 % 50) + 60)"},
	{result: Text, params: []Type{Text}, skein: "regexp_replace($1, '[aeo]+', 'X')"},
	{result: Text, params: []Type{Text}, skein: `regexp_replace($1, '(.)(.)', '\2\1', 'g')`},
	{result: Text, params: []Type{Text, Int}, skein: "overlay($1 PLACING 'zz' FROM $2)", duck: "(left($1, $2 - 1) || 'zz' || substring($1, $2 + 2))", small: [2]int{1, 4}},
}

var dateForms = []form{
	{result: Date, params: []Type{Date, Int}, skein: "($1 + $2)", small: [2]int{-400, 400}},
	{result: Date, params: []Type{Date, Int}, skein: "($1 - $2)", small: [2]int{-40, 40}},
	{result: Date, params: []Type{Stamp}, skein: "CAST($1 AS DATE)"},
	{result: Date, params: []Type{Date}, skein: "CAST(CAST($1 AS TEXT) AS DATE)"},
	{result: Stamp, params: []Type{Date}, skein: "CAST($1 AS TIMESTAMP)"},
	{result: Stamp, params: []Type{Date, Span}, skein: "($1 + $2)"},
	{result: Stamp, params: []Type{Date, Span}, skein: "($1 - $2)"},
	{result: Stamp, params: []Type{Stamp, Span}, skein: "($1 + $2)"},
	{result: Stamp, params: []Type{Stamp, Span}, skein: "($1 - $2)"},
	{result: Stamp, params: []Type{Date, Clock}, skein: "($1 + $2)"},
	{result: Stamp, params: []Type{Stamp}, skein: "date_trunc('month', $1)"},
	{result: Stamp, params: []Type{Stamp}, skein: "date_trunc('week', $1)"},
	{result: Stamp, params: []Type{Stamp}, skein: "date_trunc('hour', $1)"},
	{result: Stamp, params: []Type{Date}, skein: "date_trunc('quarter', $1)", duck: "CAST(date_trunc('quarter', $1) AS TIMESTAMP)"},
	{result: Clock, params: []Type{Stamp}, skein: "CAST($1 AS TIME)"},
	{result: Clock, params: []Type{Clock, Span}, skein: "($1 + $2)"},
	{result: Elapsed, params: []Type{Stamp, Stamp}, skein: "($1 - $2)"},
	{result: Elapsed, params: []Type{Span, Span}, skein: "($1 + $2)"},
	{result: Elapsed, params: []Type{Span}, skein: "(- $1)"},
	{result: Elapsed, params: []Type{Span, Int}, skein: "($1 * $2)", small: [2]int{-3, 3}},
	{result: Date, params: []Type{Int, Int}, skein: "make_date(1990 + abs($1 % 50), $2, 28)", small: [2]int{1, 12}},
}

var truthForms = []form{
	{result: Bool, params: []Type{Bool}, skein: "(NOT $1)"},
	{result: Bool, params: []Type{Bool}, skein: "($1 IS TRUE)"},
	{result: Bool, params: []Type{Bool}, skein: "($1 IS NOT FALSE)"},
	{result: Bool, params: []Type{Bool}, skein: "($1 IS UNKNOWN)", duck: "($1 IS NULL)"},
	{result: Bool, params: []Type{Int}, skein: "CAST($1 AS BOOLEAN)"},
	{result: Bool, params: []Type{Text}, skein: "($1 LIKE 'a%')"},
	{result: Bool, params: []Type{Text}, skein: "($1 LIKE '%o_s%')"},
	{result: Bool, params: []Type{Text}, skein: "($1 NOT LIKE '_')"},
	{result: Bool, params: []Type{Text}, skein: "($1 LIKE '%!%' ESCAPE '!')"},
	{result: Bool, params: []Type{Text}, skein: "($1 ILIKE 'g%E')"},
	{result: Bool, params: []Type{Text, Text}, skein: "starts_with($1, $2)"},
	{result: Bool, params: []Type{Text}, skein: "($1 ~ '[a-e]{2}')", duck: "regexp_matches($1, '[a-e]{2}')"},
	{result: Bool, params: []Type{Text}, skein: "($1 !~* '^g')", duck: "(NOT regexp_matches($1, '^g', 'i'))"},
}

// rowComparisons compare ($1, $2) with ($3, $4).
var rowComparisons = []form{
	{skein: "(($1, $2) = ($3, $4))", duck: "($1 = $3 AND $2 = $4)"},
	{skein: "(($1, $2) <> ($3, $4))", duck: "($1 <> $3 OR $2 <> $4)"},
	{skein: "(($1, $2) < ($3, $4))", duck: "($1 < $3 OR ($1 = $3 AND $2 < $4))"},
	{skein: "(($1, $2) >= ($3, $4))", duck: "($1 > $3 OR ($1 = $3 AND $2 >= $4))"},
	{skein: "(($1, $2) IN (($3, $4), ($3, 1)))", duck: "(($1 = $3 AND $2 = $4) OR ($1 = $3 AND $2 = 1))"},
	{skein: "(($1, $2) NOT IN (($3, $4), ($3, 1)))", duck: "(($1 <> $3 OR $2 <> $4) AND ($1 <> $3 OR $2 <> 1))"},
}

// comparable types meet in an order that both engines share.
var comparableTypes = []Type{Bool, Small, Int, Big, Double, Dec, Text, Date, Stamp, Clock, Span, UUID, Bytes}

// allForms are the forms by result.
var allForms = func() map[Type][]form {
	by := make(map[Type][]form)
	for _, list := range [][]form{numberForms, textForms, dateForms, truthForms} {
		for _, f := range list {
			by[f.result] = append(by[f.result], f)
		}
	}
	return by
}()
