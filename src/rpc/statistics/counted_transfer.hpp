#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <amalgam/core/clock.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/rpc/peer.hpp>

namespace amalgam::detail {

class engine_context;

/// A transfer from its beginning to its end, while its engine counts.
class counted_transfer {
public:
    /// On the thread that asks for the transfer. Null: nobody counts, or there is no memory.
    static std::unique_ptr<counted_transfer> begin(engine_context& context) noexcept;
    /// The engine's stream.
    void end(bool is_put, std::uint64_t bytes, const peer& with, status how) const noexcept;

private:
    explicit counted_transfer(engine_context& context);

    engine_context& context_;
    clock::time_point began_;
    std::string parent_;  // A copy: the handler may end first.
    std::uint16_t parent_provider_;
};

}  // namespace amalgam::detail
