#pragma once

#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/bulk/bulk.hpp>
#include <amalgam/bulk/expose.hpp>
#include <amalgam/core/random.hpp>
#include <amalgam/rpc/engine.hpp>

#include "conformance/random_segments.hpp"
#include "thrown.hpp"

namespace amalgam {

/// A URI for one more port; loop:// ports need names.
inline std::string one_more(std::string uri) {
    static int count = 0;
    return uri == "loop://" ? uri + "bulk" + std::to_string(++count) : uri;
}

/// URIs for tests whose ordering ThreadSanitizer cannot see: two engines of one process map shared
/// memory at two addresses, and it records bytes borrowed by sendmsg when they may have arrived
/// already.
inline std::vector<const char*> unless_thread_sanitizer(std::initializer_list<const char*> uris) {
#if defined(__SANITIZE_THREAD__)
    (void)uris;
    return {};
#else
    return uris;
#endif
}

/// Whether all are `what`. By memcmp(): a loop takes long where tests are not optimized.
inline bool all_are(const std::vector<std::byte>& bytes, std::byte what) {
    return bytes.empty() ||
           (bytes[0] == what && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

/// A server that keeps a descriptor received from the client, as user code would.
struct holder {
    explicit holder(engine& where) {
        where.define("hold", [this](bulk what) { held = std::move(what); });
    }
    bulk held;
};

}  // namespace amalgam
