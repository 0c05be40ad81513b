#pragma once

namespace amalgam::detail {

/// For ports that can tell, for less than progress() costs, that it has nothing to do. A port
/// derives from it; whoever drives one that does not must call progress() until that finds nothing.
///
/// Threads: the port's.
class port_work {
public:
    /// False: progress() would find nothing now.
    virtual bool has_work() noexcept = 0;
    /// The same after a progress() that did not use up its budget, apart from what arrived since.
    virtual bool has_more() noexcept { return has_work(); }

protected:
    ~port_work() = default;
};

}  // namespace amalgam::detail
