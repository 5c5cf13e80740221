# Makes what the linker and refuse.c need of the list symbols:
#
#   awk -f symbols.awk -v make=map symbols      the version script
#   awk -f symbols.awk -v make=header symbols   exports.h
#
# A symbol with a version that is not the only one of its name is an alias with a .symver directive, one for
# each, since older assemblers allow no more for a symbol.

BEGIN { private = split("34 57 59 64 65", numbers, " ") }
/^#/ || NF == 0 { next }
NF != 3 { print FILENAME ":" NR ": not three words" > "/dev/stderr"; exit failed = 1 }

function remember(version) {
	if (!(version in listed))
		order[++versions] = version
	listed[version] = listed[version]
}

# The function that stands for a symbol.
function target(class) {
	if (class == "int" || class == "null") return "refuse_" class
	if (class == "ignore") return class
	if (class ~ /^=/) return substr(class, 2)
	print FILENAME ":" NR ": unknown class " class > "/dev/stderr"
	exit failed = 1
}

function alias(name, of) {
	header = header "extern __typeof__(" of ") " name " __attribute__((alias(\"" of "\")));\n"
}

function symver(name, symbol, version) {
	header = header "__asm__(\".symver " name ", " symbol "@" version "\");\n"
}

$1 == "PRIVATE" {
	for (i = 1; i <= private; i++) {
		version = "IBVERBS_PRIVATE_" numbers[i]
		symbol = $2
		sub(/NN$/, numbers[i], symbol)
		remember(version)
		alias("private_" numbers[i] "_" symbol, target($3))
		symver("private_" numbers[i] "_" symbol, symbol, version)
	}
	next
}

{ remember($1) }

$3 == "old" {
	header = header "__attribute__((used)) void old_" $2 "(void);\nvoid old_" $2 "(void)\n{\n\trefuse_old(\"" $2 "\");\n}\n"
	symver("old_" $2, $2, $1)
	next
}

$3 != "here" { alias($2, target($3)) }
{ listed[$1] = listed[$1] " " $2 ";" }

END {
	if (failed)
		exit 1
	if (make == "header") {
		printf "%s", header
		exit
	}
	for (i = 1; i <= versions; i++) {
		version = order[i]
		names = listed[version] ? " global:" listed[version] : ""
		if (i == versions) # in no version that .symver names, or those would be local
			names = names " local: *;"
		public = version ~ /^IBVERBS_[0-9]/
		print version " {" names " }" (public ? parent : "") ";"
		if (public)
			parent = " " version
	}
}
