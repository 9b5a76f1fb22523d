/* TLS handshakes, or digests, in one process, with both ends in each thread:
   handshake handshakes|digests THREADS OPERATIONS. Prints the operations, what they came to, and
   the CPU time of one. */
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MUST(what)                                                                                 \
  do {                                                                                             \
    if (!(what)) { fprintf(stderr, "failed: %s, line %d\n", #what, __LINE__); abort(); }           \
  } while (0)

static SSL_CTX *server, *client;
static int handshakes;
static long operations;
static atomic_ulong sum;

static void make_contexts(void) {
  EVP_PKEY *key = EVP_EC_gen("P-256");
  X509 *certificate = X509_new();
  MUST(key && certificate);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate), -60);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  X509_set_pubkey(certificate, key);
  X509_NAME *name = X509_get_subject_name(certificate);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"test", -1, -1, 0);
  X509_set_issuer_name(certificate, name);
  MUST(X509_sign(certificate, key, EVP_sha256()));
  server = SSL_CTX_new(TLS_server_method());
  client = SSL_CTX_new(TLS_client_method());
  MUST(SSL_CTX_use_certificate(server, certificate) == 1);
  MUST(SSL_CTX_use_PrivateKey(server, key) == 1);
  MUST(X509_STORE_add_cert(SSL_CTX_get_cert_store(client), certificate) == 1);
  SSL_CTX_set_verify(client, SSL_VERIFY_PEER, NULL);
}

/* A handshake whose client checks the certificate; then a message. */
static void handshake(void) {
  SSL *s = SSL_new(server), *c = SSL_new(client);
  BIO *a, *b;
  MUST(BIO_new_bio_pair(&a, 0, &b, 0));
  SSL_set_bio(s, a, a);
  SSL_set_bio(c, b, b);
  SSL_set_accept_state(s);
  SSL_set_connect_state(c);
  int done = 0;
  for (int i = 0; i < 20 && !done; i++) {
    int of_client = SSL_do_handshake(c), of_server = SSL_do_handshake(s);
    done = of_client == 1 && of_server == 1;
  }
  char message[5];
  MUST(done && SSL_write(c, "hello", 5) == 5 && SSL_read(s, message, 5) == 5);
  MUST(!memcmp(message, "hello", 5) && SSL_get_verify_result(c) == X509_V_OK);
  atomic_fetch_add(&sum, message[0]);
  SSL_free(s);
  SSL_free(c);
}

static void digest(void) {
  unsigned char result[EVP_MAX_MD_SIZE];
  unsigned size;
  MUST(EVP_Digest("hello", 5, result, &size, EVP_sha256(), NULL));
  atomic_fetch_add(&sum, result[0]);
}

static void *run(void *of) {
  for (long i = 0; i < operations; i++) {
    if (handshakes) handshake();
    else digest();
  }
  return of;
}

int main(int count, char **arguments) {
  MUST(count == 4);
  handshakes = !strcmp(arguments[1], "handshakes");
  int threads = atoi(arguments[2]);
  operations = atol(arguments[3]);
  MUST(threads <= 64);
  make_contexts();
  pthread_t thread[64];
  struct timespec begin, end;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
  for (int i = 0; i < threads; i++) MUST(!pthread_create(&thread[i], NULL, run, NULL));
  for (int i = 0; i < threads; i++) MUST(!pthread_join(thread[i], NULL));
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
  double nanos = (end.tv_sec - begin.tv_sec) * 1e9 + (end.tv_nsec - begin.tv_nsec);
  printf("%ld %s, sum %lu\n", operations * threads, arguments[1], sum);
  fprintf(stderr, "%.0f\n", nanos / (operations * threads));
}
