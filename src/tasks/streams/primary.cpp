#include "tasks/streams/primary.hpp"

#include "tasks/limits.hpp"
#include "tasks/streams/affinity.hpp"
#include "tasks/streams/stream.hpp"

namespace amalgam::detail {

namespace {}

primary::primary(dispatcher& runs, stream_loop& loop, const std::string& name, const cpu_set& cpus)
    : main_(ult_core::of_thread(), name),
      runs_(runs),
      cpus_before_(cpu_set::of_this_thread()),
      loop_stack_(map_stack(limits::loop_stack_bytes)) {
    if (!cpus.empty()) bind_thread(thread_, cpus);
    turn_.emplace(loop);
    runs_.become_ult(main_, loop_stack_, [](stream& of) { of.loop().turn_once(); });
}

primary::~primary() {
    runs_.end_as_ult();
    turn_.reset();
    unmap_stack(loop_stack_);
    bind_thread(thread_, cpus_before_);
}

}  // namespace amalgam::detail
