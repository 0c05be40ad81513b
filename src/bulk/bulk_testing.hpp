#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/bulk/bulk.hpp>
#include <amalgam/bulk/expose.hpp>
#include <amalgam/core/random.hpp>
#include <amalgam/rpc/engine.hpp>

namespace amalgam {

inline std::vector<std::byte> pattern(std::size_t bytes, unsigned seed = 1) {
    std::vector<std::byte> made(bytes);
    seeded_random random(seed);
    for (std::byte& each : made)
        each = static_cast<std::byte>(random());
    return made;
}

/// Cuts bytes into up to `count` segments at random places; some are empty.
template <typename Bytes>
std::vector<Bytes> cut(Bytes whole, std::size_t count, seeded_random& random) {
    std::vector<Bytes> parts;
    while (count-- > 1) {
        const std::size_t length = static_cast<std::size_t>(random.below(whole.size() + 1));
        parts.push_back(whole.first(length));
        whole = whole.subspan(length);
    }
    parts.push_back(whole);
    return parts;
}

/// A URI for one more port: those of loop:// need names.
inline std::string one_more(std::string uri) {
    static int count = 0;
    return uri == "loop://" ? uri + "bulk" + std::to_string(++count) : uri;
}

/// URIs for tests whose order ThreadSanitizer does not see: two engines of one process map the
/// words of shared memory at two addresses, and of bytes that were lent to sendmsg it takes note
/// when they may have arrived already.
inline std::vector<const char*> unless_thread_sanitizer(std::initializer_list<const char*> uris) {
#if defined(__SANITIZE_THREAD__)
    (void)uris;
    return {};
#else
    return uris;
#endif
}

/// A server that holds a descriptor which the client sent it, as its own code would.
struct holder {
    explicit holder(engine& where) {
        where.define("hold", [this](bulk what) { held = std::move(what); });
    }
    bulk held;
};

/// What `work()` throws.
template <typename Work>
error thrown_by(Work work) {
    try {
        work();
    } catch (const error& why) {
        return why;
    }
    ADD_FAILURE() << "nothing was thrown";
    return error(errc::ok, "");
}

}  // namespace amalgam
