#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include <amalgam/bulk/bulk_cache.hpp>
#include <amalgam/core/buffer.hpp>
#include <amalgam/core/bytes.hpp>
#include <amalgam/directory/resource_id.hpp>

namespace amalgam {

/// Memory for one message, from its context's pools. Long messages sent from it or received into it
/// are not copied.
///
/// Owner:   owns its memory, which returns to the pool; may outlive the context.
/// Threads: like a plain value.
class message_buffer {
public:
    message_buffer() noexcept = default;  ///< Empty.
    message_buffer(buffer&& small) noexcept : small_(std::move(small)) {}
    message_buffer(bulk_buffer&& large) noexcept : large_(std::move(large)) {}

    std::byte* data() const noexcept {
        return large_ ? large_.data() : const_cast<buffer&>(small_).data();
    }
    std::size_t size() const noexcept { return large_ ? large_.size() : small_.size(); }
    std::size_t capacity() const noexcept { return large_ ? large_.capacity() : small_.capacity(); }
    mutable_bytes bytes() const noexcept { return {data(), size()}; }
    std::string_view text() const noexcept {
        return {reinterpret_cast<const char*>(data()), size()};
    }
    /// Changes size() only. Precondition: size <= capacity().
    void resize(std::size_t size) noexcept {
        if (large_) {
            large_.resize(size);
        } else {
            small_.resize(size);
        }
    }
    /// True if the memory is registered, for peers to read or write.
    bool is_registered() const noexcept { return static_cast<bool>(large_); }
    /// The registered memory itself.
    const bulk_buffer& registered() const noexcept { return large_; }
    /// The same, moved out; this buffer is empty afterwards.
    bulk_buffer take_registered() noexcept { return std::move(large_); }

private:
    buffer small_;
    bulk_buffer large_;
};

/// A message received from another resource.
struct resource_message {
    resource_id from = resource_id::none;  ///< The sender.
    resource_id to = resource_id::none;    ///< The receiver; a resource of this context.
    std::int32_t tag = 0;                  ///< As the sender chose it.
    message_buffer content;                ///< Owned by the message.
};

/// Selects which messages to receive; the oldest match first.
struct message_choice {
    resource_id from = resource_id::none;  ///< none: any sender.
    std::optional<std::int32_t> tag = {};  ///< Empty: any tag.
};

}  // namespace amalgam
