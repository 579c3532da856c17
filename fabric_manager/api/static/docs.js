// validatorUrl null: the default sends the document to a server on the internet.
SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  displayOperationId: true,
  tryItOutEnabled: true,
  validatorUrl: null,
});
