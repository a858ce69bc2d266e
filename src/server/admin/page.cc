#include "server/admin/page.h"

#include <algorithm>
#include <string>

namespace deltad {

namespace {

// "127.0.0.1:8081" → "127.0.0.1", "[::1]:8081" → "[::1]".
std::string_view without_port(std::string_view host) {
  if (!host.empty() && host.front() == '[') return host.substr(0, host.find(']') + 1);
  return host.substr(0, host.rfind(':'));
}

// No name server decides where these lead.
bool is_literal(std::string_view host) {
  if (host == "localhost") return true;
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') return true;
  return !host.empty() && std::all_of(host.begin(), host.end(),
                                      [](char c) { return c == '.' || (c >= '0' && c <= '9'); });
}

}  // namespace

const AdminPageFile* find_admin_page_file(std::string_view path) {
  for (const AdminPageFile& file : kAdminPageFiles)
    if (file.path == path) return &file;
  return nullptr;
}

HttpResponse admin_page_response(const AdminPageFile& file) {
  HttpResponse response;
  response.headers = {{"Content-Type", std::string(file.type)},
                      {"Cache-Control", "no-cache"},
                      {"Content-Security-Policy",
                       "default-src 'none'; script-src 'self'; style-src 'self'; connect-src "
                       "'self'; img-src data:; "
                       "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"}};
  response.body = std::string(file.content);
  return response;
}

bool from_own_page(const HttpRequest& request, bool has_keys) {
  const std::string* origin = request.header("origin");
  const std::string* host = request.header("host");
  if (origin == nullptr || host == nullptr || host->empty()) return false;
  if (*origin != "http://" + *host && *origin != "https://" + *host) return false;
  return has_keys || is_literal(without_port(*host));
}

}  // namespace deltad
