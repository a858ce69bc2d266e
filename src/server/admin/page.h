// The page in the browser on the admin listener: its files are part of the program and need
// nothing from elsewhere. It is no secret and opens to all that reach the listener; what it shows
// it asks of the admin API, with the key that its user gives it. Pure.
#pragma once

#include <string_view>

#include "server/exchange.h"

namespace deltad {

struct AdminPageFile {
  std::string_view path, type, content;
};

extern const AdminPageFile kAdminPageFiles[3];  // made when deltad is built

// The page's file of this path (query and all are left out before); null: none.
const AdminPageFile* find_admin_page_file(std::string_view path);

// The file as an answer. The browser is told to run nothing but these files and to talk to nobody
// but this server.
HttpResponse admin_page_response(const AdminPageFile& file);

// Whether a request that a web page caused (it has an Origin) may be answered: only if the page is
// this listener's own. A site elsewhere whose name was made to lead here is told from it by the
// Host that the browser asked for: without keys it must be a literal address or localhost.
bool from_own_page(const HttpRequest& request, bool has_keys);

}  // namespace deltad
