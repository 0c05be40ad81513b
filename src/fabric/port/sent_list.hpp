#pragma once

#include <cstdint>

#include <amalgam/fabric/completion.hpp>

namespace amalgam::detail {

/// Borrowed frames that were sent and whose senders were not told yet, in order.
///
/// Owner:   links them by port_words[3], which is the transport's while a payload is borrowed.
/// Threads: the port's thread.
/// Cost:    no allocation; forget() is linear.
class sent_list {
public:
    bool empty() const noexcept { return first_ == nullptr; }

    void push(completion& op) noexcept {
        next_of(op) = 0;
        if (first_ != nullptr)
            next_of(*last_) = reinterpret_cast<std::uintptr_t>(&op);
        else
            first_ = &op;
        last_ = &op;
    }

    /// Precondition: not empty().
    completion& pop() noexcept {
        completion& op = *first_;
        first_ = after(op);
        return op;
    }

    /// Takes it out; false: it is not here.
    bool forget(const completion& op) noexcept {
        completion* before = nullptr;
        for (completion* at = first_; at != nullptr; before = at, at = after(*at)) {
            if (at != &op) continue;
            if (before != nullptr)
                next_of(*before) = next_of(*at);
            else
                first_ = after(*at);
            if (last_ == at) last_ = before;
            return true;
        }
        return false;
    }

    void clear() noexcept { first_ = nullptr; }

private:
    static std::uintptr_t& next_of(completion& op) noexcept { return op.port_words[3]; }
    static completion* after(completion& op) noexcept {
        return reinterpret_cast<completion*>(next_of(op));
    }

    completion* first_ = nullptr;
    completion* last_ = nullptr;  ///< Unless empty().
};

}  // namespace amalgam::detail
