#pragma once

namespace amalgam::detail {

class engine_core;

/// Keeps the engine's core alive while a future may still request cancellation.
class core_reference {
public:
    explicit core_reference(engine_core& core) noexcept;
    core_reference(const core_reference&) = delete;
    core_reference& operator=(const core_reference&) = delete;
    ~core_reference();

private:
    engine_core& kept_alive_;
};

}  // namespace amalgam::detail
