// Whether an address is on the public internet. Proved by tests/base/fetch/public_address_test.cpp.
#pragma once

#include <sys/socket.h>

namespace lumen {

// False for private, loopback, link-local, multicast, documentation and other special addresses (RFC 6890 and its
// registries), also where an IPv6 address contains one, and for sockets that are neither IPv4 nor IPv6.
bool is_public_address(const sockaddr* address, socklen_t size);

}  // namespace lumen
