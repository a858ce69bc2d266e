// The code of Boost.Asio and Boost.Beast, compiled once.
#include "server/http/beast.h"

#include <boost/asio/impl/src.hpp>
#include <boost/asio/ssl/impl/src.hpp>
#include <boost/beast/src.hpp>
