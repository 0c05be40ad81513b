#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include <amalgam/rpc/peer.hpp>
#include <amalgam/rpc/trace_context.hpp>

namespace amalgam::detail {

/// A stream of values while it is recorded, at the handler that sends or reads it: a span below
/// the handler's, to the last value, and one below that for each batch, which are the values that
/// passed between two waits for credit. Both are recorded when it ends.
///
/// Threads: one at a time.
class stream_span {
public:
    /// `under`: the handler's trace. Null: that is not recorded, or there is no memory.
    static std::unique_ptr<stream_span> begin(const trace_context* under,
                                              std::string_view procedure,
                                              const peer& with) noexcept;
    ~stream_span();
    stream_span(const stream_span&) = delete;
    stream_span& operator=(const stream_span&) = delete;

    /// A value has passed.
    void add(std::size_t bytes) noexcept;
    void end_batch() noexcept;

private:
    struct part {
        std::uint64_t began = 0;
        std::uint64_t ended = 0;
        std::uint64_t bytes = 0;
        std::uint32_t values = 0;
    };

    stream_span(const trace_context& under, std::string_view procedure, const peer& with) noexcept;

    trace_context trace_;  ///< Its own span.
    std::array<std::byte, 8> parent_;
    std::uint32_t name_;
    std::uint32_t peer_;
    part whole_;
    part batch_;
};

}  // namespace amalgam::detail
