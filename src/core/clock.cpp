#include <amalgam/core/clock.hpp>

namespace amalgam {
namespace {

class machine_clock final : public clock {
public:
    time_point now() const noexcept override { return std::chrono::steady_clock::now(); }
};

}  // namespace

clock& clock::steady() noexcept {
    static machine_clock the_clock;  // Stateless, so it shares nothing.
    return the_clock;
}

}  // namespace amalgam
