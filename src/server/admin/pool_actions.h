// What an admin request to the adapter pool does. Never waits for an operation: its answer is that
// it has its place in the queue.
#pragma once

#include <string_view>

#include "server/admin/actions.h"

namespace deltad {

ApiError perform_on_pool(PoolService* pool, const AdminRoute& route, std::string_view body,
                         AdminAnswer* answer);

}  // namespace deltad
