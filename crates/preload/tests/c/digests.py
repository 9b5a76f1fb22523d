# Digests and TLS contexts in four threads. Python's locks are semaphores, OpenSSL's are ours.
import hashlib
import ssl
import threading

total = 0
lock = threading.Lock()


def work(number):
    global total
    for i in range(500):
        digest = hashlib.new("sha256", b"%d %d" % (number, i)).digest()
        if i % 100 == 0:
            ssl.create_default_context()
        with lock:
            total += digest[0]


threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("ok", total)
