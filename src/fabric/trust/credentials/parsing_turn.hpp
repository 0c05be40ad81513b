#pragma once

#include <mutex>

namespace amalgam::detail {

/// Held by the one who parses credentials again and puts them in force. fork() waits for it, and
/// for stores_lock() and secure_heap_lock(), which are taken in this order: so a child finds no
/// lock of OpenSSL's, or of the credentials', that another thread held. So does the end of the
/// process wait, which takes OpenSSL apart.
///
/// Never held while a file system may be waited for, or while a user's function runs.
class parsing_turn {
public:
    /// Before a thread in the background has the first one, and after OpenSSL was used: what is
    /// noted last is undone first at the end of the process. Failure: throws std::bad_alloc.
    static void prepare();

    parsing_turn();

    /// The process ends: a thread in the background leaves OpenSSL alone.
    bool process_ends() const noexcept;

private:
    const std::lock_guard<std::mutex> hold_;
};

/// Guards the members of all stores: one for all, as fork() waits for it. Held for moments, never
/// while something is read or parsed.
std::mutex& stores_lock() noexcept;

}  // namespace amalgam::detail
