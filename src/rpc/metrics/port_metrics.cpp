#include "rpc/metrics/port_metrics.hpp"

#include <string>
#include <vector>

#include "rpc/metrics/put_metric.hpp"

namespace amalgam::detail {

void write_port(const port& which, const std::string& address, metric_writer& into) {
    const std::vector<metric_label> labels{{"port", address},
                                           {"transport", std::string(which.can().transport)}};
    const port_usage used = which.usage();
    put_metric(
        into,
        {"amalgam_port_queued_bytes",
         "Messages of a port not taken yet, and large ones still arriving.", varies, "bytes"},
        labels, static_cast<double>(used.queued_bytes));
    into.add(
        {"amalgam_port_pooled_bytes", "Free memory that a port keeps for reuse.", varies, "bytes"},
        labels, static_cast<double>(used.pooled_bytes));
    put_metric(into,
               {"amalgam_port_evicted_total",
                "Connections of a port ended because a bound was exceeded.", grows},
               labels, static_cast<double>(used.evicted));
    const amalgam::transfer_counts moved = which.transfers();
    put_metric(into,
               {"amalgam_port_direct_transfers_total",
                "Puts and gets carried out by library, device or kernel.", grows},
               labels, static_cast<double>(moved.direct));
    into.add(
        {"amalgam_port_direct_transfer_bytes_total", "Bytes that these moved.", grows, "bytes"},
        labels, static_cast<double>(moved.direct_bytes));
    into.add({"amalgam_port_copied_transfer_bytes_total",
              "Of these, bytes that went through memory of the port's own.", grows, "bytes"},
             labels, static_cast<double>(moved.copied_bytes));
    put_metric(into,
               {"amalgam_port_served_transfers_total",
                "Puts and gets of peers that the port's progress answered.", grows},
               labels, static_cast<double>(moved.served));
}

}  // namespace amalgam::detail
