#pragma once

namespace amalgam::detail {

/// For ports that know when progress() has nothing left to do. A port derives from it; whoever
/// drives one that does not must call progress() until that finds nothing.
///
/// Threads: the port's.
class port_work {
public:
    /// False: another progress() would find only what comes from outside meanwhile, provided the
    /// last one did not use up its budget.
    virtual bool may_have_more() const noexcept = 0;

protected:
    ~port_work() = default;
};

}  // namespace amalgam::detail
