// Methods of str, in two files: string_methods.cc (case, padding, questions) and
// string_split_methods.cc (searching, splitting, joining). Results of markup are markup.
#pragma once

#include "text/jinja/render.h"

namespace deltad::jinja {

// Text made from self, with its markup.
Value derived(Render& render, const Value& self, std::string text);
// A string argument as text to be put into self: escaped if self is markup and it is not.
std::string inserted(Render& render, const Value& self, const Value& v, std::string_view method);

// s with every old replaced by fresh, at most count times (negative: all).
std::string replaced(Render& render, const std::string& s, const std::string& old,
                     const std::string& fresh, Int count);

Value str_count(Render&, const Value& self, Arguments&);
Value str_find(Render&, const Value& self, Arguments&);
Value str_rfind(Render&, const Value& self, Arguments&);
Value str_index(Render&, const Value& self, Arguments&);
Value str_rindex(Render&, const Value& self, Arguments&);
Value str_startswith(Render&, const Value& self, Arguments&);
Value str_endswith(Render&, const Value& self, Arguments&);
Value str_split(Render&, const Value& self, Arguments&);
Value str_rsplit(Render&, const Value& self, Arguments&);
Value str_splitlines(Render&, const Value& self, Arguments&);
Value str_partition(Render&, const Value& self, Arguments&);
Value str_rpartition(Render&, const Value& self, Arguments&);
Value str_join(Render&, const Value& self, Arguments&);
Value str_replace(Render&, const Value& self, Arguments&);
Value str_removeprefix(Render&, const Value& self, Arguments&);
Value str_removesuffix(Render&, const Value& self, Arguments&);

}  // namespace deltad::jinja
