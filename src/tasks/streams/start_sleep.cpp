#include <amalgam/tasks/start_sleep.hpp>

namespace amalgam::detail {

sleep_operation::sleep_operation(execution_stream& where, time_point until) noexcept
    : timer(
          where,
          [](timer& self) noexcept { static_cast<sleep_operation&>(self).unit_.make_ready(); },
          [](const timer& self) noexcept {
              return static_cast<const sleep_operation&>(self).unit_.home();
          }),
      where_(where),
      until_(until) {}

void sleep_operation::await_suspend(std::coroutine_handle<> who) noexcept {
    unit_.prepare_in(where_.main_pool(), who);
    arm(until_);  // may have resumed by now
}

}  // namespace amalgam::detail
