// A small HTTP server that counts what its threads do, and shows the counts at /metrics as Prometheus reads them.
//
//     c++ -std=c++17 -O2 -pthread -I include examples/server.cpp -o server
//     ./server 8080          serves until it is stopped
//     ./server               serves 400 requests of its own, prints the metrics and ends
//
// The counters are statics: ready before main, and added to until the last thread ends.

#include <coreline/counter.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

enum Metric : std::size_t { kRequests, kNotFound, kBytesIn, kBytesOut, kMetrics };
constexpr const char* kNames[kMetrics] = {"requests", "not_found", "bytes_in", "bytes_out"};

/// What a request changes together lies together.
coreline::CounterSet<kMetrics> metrics;
/// Goes up and down.
coreline::Counter open_connections;

std::string metrics_text() {
    std::string text;
    char line[128];
    for (std::size_t metric = 0; metric < kMetrics; ++metric) {
        const char* name = kNames[metric];
        std::snprintf(line, sizeof line, "# TYPE server_%s_total counter\nserver_%s_total %" PRId64 "\n", name, name,
                      metrics.sum(metric));
        text += line;
    }
    std::snprintf(line, sizeof line, "# TYPE server_open_connections gauge\nserver_open_connections %" PRId64 "\n",
                  open_connections.sum());
    return text + line;
}

std::string answer(std::string_view request) {
    metrics.increment(kRequests);
    metrics.add(kBytesIn, static_cast<std::int64_t>(request.size()));
    const bool is_metrics = request.substr(0, 13) == "GET /metrics ";
    const bool is_found = is_metrics || request.substr(0, 6) == "GET / ";
    if (!is_found) metrics.increment(kNotFound);
    const std::string body = is_metrics ? metrics_text() : is_found ? "hello\n" : "not found\n";
    std::string text = is_found ? "HTTP/1.0 200 OK\r\n" : "HTTP/1.0 404 Not Found\r\n";
    text += "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
    metrics.add(kBytesOut, static_cast<std::int64_t>(text.size()));
    return text;
}

void serve(int listener) {
    for (;;) {
        const int connection = accept(listener, nullptr, nullptr);
        if (connection < 0) return;  // The listener was shut down.
        open_connections.increment();
        char request[2048];
        const ssize_t length = read(connection, request, sizeof request);
        if (length > 0) {
            const std::string text = answer({request, static_cast<std::size_t>(length)});
            if (write(connection, text.data(), text.size()) < 0) std::perror("write");
        }
        // Before the client sees the end, and may ask for the count.
        open_connections.add(-1);
        close(connection);
    }
}

sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

std::string get(const sockaddr_in& server, const std::string& path) {
    const int connection = socket(AF_INET, SOCK_STREAM, 0);
    const std::string request = "GET " + path + " HTTP/1.0\r\n\r\n";
    std::string text;
    if (connect(connection, reinterpret_cast<const sockaddr*>(&server), sizeof server) == 0 &&
        write(connection, request.data(), request.size()) > 0) {
        char part[2048];
        for (ssize_t length; (length = read(connection, part, sizeof part)) > 0;)
            text.append(part, static_cast<std::size_t>(length));
    }
    close(connection);
    return text;
}

}  // namespace

int main(int argc, char** argv) {
    const bool is_demonstration = argc < 2;
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = loopback(static_cast<std::uint16_t>(is_demonstration ? 0 : std::atoi(argv[1])));
    socklen_t length = sizeof address;
    if (bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(listener, 128) != 0 ||
        getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
        std::perror("server: cannot listen");
        return 1;
    }
    std::vector<std::thread> workers;
    for (int number = 0; number < 4; ++number) workers.emplace_back(serve, listener);
    if (is_demonstration) {
        std::vector<std::thread> clients;
        for (int number = 0; number < 4; ++number)
            clients.emplace_back([&] {
                for (int i = 0; i < 100; ++i) get(address, i % 10 == 9 ? "/missing" : "/");
            });
        for (auto& client : clients) client.join();
        std::fputs(get(address, "/metrics").c_str(), stdout);
        shutdown(listener, SHUT_RDWR);
    }
    for (auto& worker : workers) worker.join();
    close(listener);
}
