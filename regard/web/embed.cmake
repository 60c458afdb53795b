# cmake -D SOURCE=<page folder> -D OUTPUT=<file.cc> -D SCRIPTS=<a.js,b.js,...> -P embed.cmake
# Puts page/index.html, style.css and the scripts into one text, and that into a C++ file. The scripts become one
# function, so that their names are their own. The content policy allows just this style and this script, by
# their SHA-256.

# SHA-256 of a text in base64, as a content policy wants it.
function(policy_hash text result)
  string(SHA256 hex "${text}")
  string(APPEND hex "00")  # 33 bytes, a multiple of three; the last digit becomes "="
  set(digits "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
  set(out "")
  foreach(at RANGE 0 65 3)
    string(SUBSTRING ${hex} ${at} 3 part)  # 12 bits, two digits
    math(EXPR high "0x${part} >> 6")
    math(EXPR low "0x${part} & 63")
    string(SUBSTRING ${digits} ${high} 1 first)
    string(SUBSTRING ${digits} ${low} 1 second)
    string(APPEND out ${first} ${second})
  endforeach()
  string(REGEX REPLACE ".$" "=" out "${out}")
  set(${result} "${out}" PARENT_SCOPE)
endfunction()

file(READ ${SOURCE}/index.html page)
file(READ ${SOURCE}/style.css style)
set(script "(() => {\n'use strict';\n")
string(REPLACE "," ";" names "${SCRIPTS}")
foreach(name IN LISTS names)
  file(READ ${SOURCE}/${name} part)
  string(APPEND script "${part}")
endforeach()
string(APPEND script "})();\n")
policy_hash("${style}" style_hash)
policy_hash("${script}" script_hash)
string(REPLACE "{{style-hash}}" "${style_hash}" page "${page}")
string(REPLACE "{{script-hash}}" "${script_hash}" page "${page}")
string(REPLACE "{{style}}" "${style}" page "${page}")
string(REPLACE "{{script}}" "${script}" page "${page}")
string(FIND "${page}" "{{data}}\n" split)
string(SUBSTRING "${page}" 0 ${split} before)
math(EXPR split "${split} + 9")
string(SUBSTRING "${page}" ${split} -1 after)

file(WRITE ${OUTPUT} "// Made by embed.cmake.
#include \"regard/web/page_template.h\"

namespace regard::web {

const std::string_view kPageBeforeData = R\"~page~(${before})~page~\";

const std::string_view kPageAfterData = R\"~page~(${after})~page~\";

}  // namespace regard::web
")
